"""The loop over random checkpoints: what an answer depends on, who is admitted when, who is refused."""

import asyncio

import pytest

from simsd.config import LoopConfig
from simsd.errors import ContextLengthError, QueueFullError, RequestError
from simsd.in_process import Completion, LocalClient, collect, generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Output, Request
from simsd.tokens.tokenizer import Tokenizer
from tests.unit.loops import (
    SHAPE,
    Answer,
    Pair,
    Recorder,
    answers,
    mixed_requests,
    one_by_one,
    request,
    started,
)
from tests.unit.toy_tokenizer import MASK_ID

pytestmark = pytest.mark.timeout(300)


def test_the_draft_is_worth_testing_with(pair: Pair) -> None:
    """It is accepted and rejected often, so that both paths are taken below; and the counters are consistent."""
    completions = generate_all(pair.loop(pair.worker("target"), pair.worker("draft")), mixed_requests())
    for each in (c.stats for c in completions[1:]):
        assert each.accepted + each.recovered + each.bonus + each.fallback_tokens >= 22
        assert each.accepted <= each.drafted
        assert sum(size * count for size, count in each.accept_histogram.items()) == each.accepted
        assert 0 < sum(each.accept_histogram.values()) <= each.target_forwards <= each.rounds
    assert sum(c.stats.accepted for c in completions) > 20
    assert sum(c.stats.recovered for c in completions) > 5
    assert completions[0].stats.draft_forwards == completions[0].stats.drafted == 0
    assert [c.stats.prompt_tokens for c in completions] == [150, 7, 61, 100, 33]
    assert [c.stats.completion_tokens for c in completions] == [22] * 5


def test_forwards_are_those_a_request_took_part_in(pair: Pair) -> None:
    """Beside a neighbour that drafts for longer, a request's counters are what they are alone."""
    short, long = request("short", 12, gamma=1), request("long", 12, gamma=4, draft_steps=4)
    fresh = {"prefix_cache": False}
    loop = pair.loop(pair.worker("target", **fresh), pair.worker("draft", **fresh))
    together = generate_all(loop, [short, long])
    alone = one_by_one(loop, [short, long])
    counts = [[(c.stats.target_forwards, c.stats.draft_forwards) for c in each] for each in (together, alone)]
    assert counts[0] == counts[1]
    assert counts[0][0][1] < counts[0][1][1]


@pytest.mark.parametrize("prefill_rows", [64, 100, 1024])
def test_answers_do_not_depend_on_chunks_or_batch_mates(pair: Pair, alone: list[Answer], prefill_rows: int) -> None:
    """All together, the longest prompts cut into chunks that they share a budget for."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), prefill_rows=prefill_rows)
    assert answers(generate_all(loop, mixed_requests())) == alone


def test_a_prompt_longer_than_prefill_rows_takes_its_rounds(pair: Pair) -> None:
    rounds = {}
    for rows in (64, 256):
        loop = pair.loop(pair.worker("target"), pair.worker("draft"), prefill_rows=rows)
        rounds[rows] = generate_all(loop, [request("long", 230, method="vanilla", max_tokens=4)])[0].stats.rounds
    # 228 tokens in whole blocks: 64 + 64 + 64, then 36 > B, then decoding; or 228 in one go.
    assert rounds[64] - rounds[256] == 3


def test_neighbours_that_come_and_go_do_not_show(pair: Pair, alone: list[Answer]) -> None:
    """Two at a time, so that each meets others in other phases."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), max_running=2)
    assert answers(generate_all(loop, mixed_requests()[::-1]))[::-1] == alone


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_prefix_cache_changes_no_token(pair: Pair, alone: list[Answer], prefix_cache: bool) -> None:
    loop = pair.loop(*(pair.worker(role, prefix_cache=prefix_cache) for role in ("target", "draft")))
    first, second = (one_by_one(loop, mixed_requests()) for _ in range(2))
    assert answers(first) == answers(second) == alone
    assert [c.stats.cached_tokens for c in first] == [0] * 5
    whole_pages = [144, 0, 48, 96, 32]  # of 16 tokens
    assert [c.stats.cached_tokens for c in second] == (whole_pages if prefix_cache else [0] * 5)


def test_only_the_last_output_ends_and_none_is_empty(pair: Pair) -> None:
    async def outputs() -> list[Output]:
        loop = pair.loop(pair.worker("target"), pair.worker("draft"))
        rounds = asyncio.create_task(loop.run())
        out = [output async for output in loop.generate(request("a", 9, method="exact"))]
        rounds.cancel()
        return out

    out = asyncio.run(outputs())
    assert len(out) > 2
    assert all(each.token_ids or each.text for each in out)
    assert [each.finish_reason for each in out] == [None] * (len(out) - 1) + ["length"]
    assert [each.stats is None for each in out] == [True] * (len(out) - 1) + [False]


@pytest.mark.parametrize("tight", ["target", "draft"])
def test_who_does_not_fit_waits_and_is_not_overtaken(pair: Pair, tight: str) -> None:
    """8 pages: a and b need 5 each, c 2. c would fit beside a, but b came first; c then runs beside b."""
    target = pair.worker("target", kv_tokens=128 if tight == "target" else 2048)
    draft = pair.worker("draft", kv_tokens=128 if tight == "draft" else 2048)
    recorder = Recorder(target)
    loop = pair.loop(recorder, draft, max_running=8)
    completions = generate_all(loop, [request("a", 50), request("b", 50), request("c", 10)])
    assert [len(c.token_ids) for c in completions] == [22] * 3
    assert not any({"a", "b"} <= batch for batch in recorder.rounds)
    assert started(recorder.rounds) == ["a", "b", "c"]
    assert {"b", "c"} in recorder.rounds
    assert completions[1].stats.queue_s > 0
    assert target.page_use().held == draft.page_use().held == 0


def test_who_drafts_not_needs_no_room_in_the_draft(pair: Pair) -> None:
    """One that drafts fits into the draft's 8 pages; however it comes between two that do not, all run at once."""
    recorder = Recorder(pair.worker("target"))
    loop = pair.loop(recorder, pair.worker("draft", kv_tokens=128))
    requests = [request("u", 50, method="vanilla"), request("a", 50), request("v", 50, method="vanilla")]
    generate_all(loop, requests)
    assert recorder.rounds[0] == {"u", "a", "v"}


def test_max_running_bounds_a_round(pair: Pair) -> None:
    recorder = Recorder(pair.worker("target"))
    loop = pair.loop(recorder, pair.worker("draft"), max_running=2)

    async def run() -> None:
        rounds = asyncio.create_task(loop.run())
        await asyncio.gather(*(collect(loop, request(name, 6)) for name in "abcde"))
        rounds.cancel()

    asyncio.run(run())
    assert max(map(len, recorder.rounds)) == 2
    assert started(recorder.rounds) == list("abcde")


def test_a_full_queue_refuses_and_the_others_go_on(pair: Pair) -> None:
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), max_running=1, max_queued=1)

    async def run() -> list[Completion]:
        rounds = asyncio.create_task(loop.run())
        running = loop.generate(request("running", 6))
        await anext(running)
        waiting = asyncio.create_task(collect(loop, request("waiting", 6)))
        await asyncio.sleep(0)
        assert loop.load() == (1, 1)
        with pytest.raises(QueueFullError, match="1 requests are waiting") as caught:
            await anext(loop.generate(request("refused", 6)))
        assert caught.value.retry_after_s > 0
        last = [output async for output in running][-1]
        assert last.finish_reason == "length"
        done = [await waiting, await collect(loop, request("later", 6))]
        rounds.cancel()
        return done

    assert [len(c.token_ids) for c in asyncio.run(run())] == [22, 22]
    assert loop.load() == (0, 0)


def test_no_queue_still_serves_who_can_run_at_once(pair: Pair) -> None:
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), max_running=1, max_queued=0)
    assert len(generate_all(loop, [request("a", 6)])[0].token_ids) == 22


@pytest.mark.parametrize(
    ("target", "draft", "share", "method", "says"),
    [
        ({"max_model_len": 64}, {}, 1.0, "simsd", "42 prompt tokens and max_tokens 25 exceed the context of 64 tokens"),
        ({"max_model_len": 67}, {}, 1.0, "vanilla", "exceed the context of 64 tokens"),
        ({"kv_tokens": 64}, {}, 1.0, "exact", "42 prompt tokens and max_tokens 25 never fit the target's 4 pages"),
        ({}, {"kv_tokens": 64}, 1.0, "simsd", "never fit the draft's 4 pages"),
        ({}, {"kv_tokens": 128}, 0.5, "simsd", "never fit the draft's 8 pages"),
    ],
)
def test_what_can_never_fit_is_refused_at_once(
    pair: Pair, target: dict[str, int], draft: dict[str, int], share: float, method: str, says: str
) -> None:
    """One block too many; a block less is served."""
    loop = pair.loop(pair.worker("target", **target), pair.worker("draft", **draft), draft_share=share)
    with pytest.raises(ContextLengthError) as caught:
        asyncio.run(collect(loop, request("a", 42, max_tokens=25, method=method)))
    assert says in str(caught.value)
    assert caught.value.param == "max_tokens"
    assert loop.load() == (0, 0)
    assert len(generate_all(loop, [request("b", 42, max_tokens=22, method=method)])[0].token_ids) == 22


@pytest.mark.parametrize(
    ("bad", "param", "says"),
    [
        (Request("x", [], DecodeParams()), "prompt", "empty"),
        (Request("x", [5, MASK_ID, 6], DecodeParams()), "prompt", "mask token 3"),
        (Request("x", [5, SHAPE.vocab_size], DecodeParams()), "prompt", "0..335"),
        (Request("x", [-1], DecodeParams()), "prompt", "0..335"),
        (Request("x", [5], DecodeParams(gamma=5)), "gamma", "between 1 and 4; got 5"),
        (Request("x", [5], DecodeParams(gamma=2, draft_steps=3)), "draft_steps", "between 1 and 2; got 3"),
        (Request("x", [5], DecodeParams(steps=5)), "steps", "between 1 and 4; got 5"),
        (Request("x", [5], DecodeParams(row_budget=3)), "row_budget", "at least 4; got 3"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(pair: Pair, bad: Request, param: str, says: str) -> None:
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    with pytest.raises(RequestError) as caught:
        asyncio.run(collect(loop, bad))
    assert caught.value.param == param
    assert says in str(caught.value)
    assert loop.load() == (0, 0)


def test_an_id_in_use_is_refused_and_free_again_afterwards(pair: Pair) -> None:
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))

    async def run() -> None:
        rounds = asyncio.create_task(loop.run())
        first = asyncio.create_task(collect(loop, request("same", 6)))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="'same' is in use"):
            await collect(loop, request("same", 6))
        tokens = (await first).token_ids
        assert (await collect(loop, request("same", 6))).token_ids == tokens
        rounds.cancel()

    asyncio.run(run())


def test_without_a_draft_only_vanilla_is_served(pair: Pair, alone: list[Answer]) -> None:
    loop = Loop(LocalClient(pair.worker("target")), None, Tokenizer.load(pair.target), LoopConfig())
    with pytest.raises(RequestError, match=r"'simsd' needs a draft model") as caught:
        asyncio.run(collect(loop, request("a", 6)))
    assert caught.value.param == "method"
    assert answers(generate_all(loop, mixed_requests()[:1])) == alone[:1]
