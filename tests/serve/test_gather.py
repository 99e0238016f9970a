"""Messages of a stream are gathered by tokens; nothing is lost or said twice, whatever ends it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext

import pytest

from deployments.gather import gather
from simsd.errors import InternalError
from simsd.messages.request import Output, RoundEvent, Stats, TokenLogprob

SIZES = (4, 4, 0, 3, 4, 1)


def pieces(end: bool = True) -> list[Output]:
    """Of `SIZES` tokens, which count from 0."""
    found, first = [], 0
    for size in SIZES:
        ids = list(range(first, first + size))
        found.append(Output(ids, "".join(f"{i} " for i in ids), logprobs=[TokenLogprob(-float(i), []) for i in ids]))
        first += size
    if end:
        found[-1].finish_reason, found[-1].stats = "stop", Stats(completion_tokens=first)
    return found


def gathered(interval: int, outputs: list[Output], error: Exception | None = None) -> list[Output]:
    """What comes out, and what was seen on the way: each by itself."""
    seen: list[int] = []

    async def said() -> AsyncGenerator[Output, None]:
        for output in outputs:
            yield output
        if error:
            raise error

    async def listen() -> list[Output]:
        got: list[Output] = []
        with pytest.raises(InternalError) if error else nullcontext():
            async for output in gather(said(), interval, lambda output: seen.append(len(output.token_ids))):
                got += [output]
        return got

    got = asyncio.run(listen())
    assert seen == list(SIZES)
    return got


@pytest.mark.parametrize(
    ("interval", "sizes"), [(0, [16]), (1, list(SIZES)), (4, [4, 4, 7, 1]), (6, [4, 7, 5]), (99, [4, 12])]
)
def test_sizes(interval: int, sizes: list[int]) -> None:
    got = gathered(interval, pieces())
    assert [len(output.token_ids) for output in got] == sizes
    assert [i for output in got for i in output.token_ids] == list(range(16))
    assert "".join(output.text for output in got) == "".join(f"{i} " for i in range(16))
    assert [each.logprob for output in got for each in output.logprobs] == [-float(i) for i in range(16)]
    assert [output.finish_reason for output in got] == [None] * (len(sizes) - 1) + ["stop"]
    assert got[-1].stats == Stats(completion_tokens=16)


@pytest.mark.parametrize(("interval", "sizes"), [(0, []), (6, [4, 7, 5])])
def test_what_was_held_back_goes_before_an_error(interval: int, sizes: list[int]) -> None:
    """Of an answer that was to come as a whole nothing does."""
    got = gathered(interval, pieces(end=False), InternalError("an engine failed"))
    assert [len(output.token_ids) for output in got] == sizes
    assert all(output.finish_reason is None for output in got)


def test_events_are_told_as_they_come() -> None:
    """Also of rounds that make nothing visible."""
    outputs = pieces()
    outputs[2].events = [RoundEvent(3, 8, [], [(9, 7, "denoised")])]
    got = gathered(99, outputs)
    assert [len(output.token_ids) for output in got] == [4, 4, 8]
    assert [len(output.events) for output in got] == [0, 1, 0]
