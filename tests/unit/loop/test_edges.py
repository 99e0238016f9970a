"""Where answers begin and end: prompt tails, max_tokens in a block, EOS, stop strings, mask tokens, context limits."""

import dataclasses

import pytest

from simsd.errors import ContextLengthError, RequestError
from simsd.in_process import LocalClient
from simsd.loop.loop import Loop
from simsd.loop.sequence import Sequence
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import BlockVerdict, Verdict
from simsd.tokens.text import TextStream
from tests.unit import pairs

METHODS = ("vanilla", "simsd", "exact")
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module", params=(4, 8))
def loop(request: pytest.FixtureRequest) -> Loop:
    return pairs.loop_of(request.param)


def size_of(loop: Loop) -> int:
    return loop.target.info.block_size


@pytest.mark.parametrize("method", METHODS)
def test_prompts_of_every_length_mod_block(loop: Loop, method: str) -> None:
    """A prompt's tail opens the first block at every remainder; the answer is the one `vanilla` gives from there."""
    size = size_of(loop)
    prompts = [pairs.chat("7" * n + QUESTION) for n in range(2 * size)]
    assert {len(prompt) % size for prompt in prompts} == set(range(size))
    done = pairs.run(loop, prompts, [DecodeParams(method=method, max_tokens=24)] * len(prompts))
    assert all(c.stats.completion_tokens == len(c.token_ids) and c.token_ids for c in done)
    if method == "exact":
        plain = pairs.run(loop, prompts, [DecodeParams(method="vanilla", max_tokens=24)] * len(prompts))
        assert [c.token_ids for c in done] == [c.token_ids for c in plain]


@pytest.mark.parametrize("method", METHODS)
def test_max_tokens_inside_a_block(loop: Loop, method: str) -> None:
    """Every cap gives the beginning of the longer answer, and says so."""
    prompt = pairs.chat("Tom has 23 apples and buys 14 more. How many apples does he have now?")
    caps = range(1, 2 * size_of(loop) + 2)
    params = [DecodeParams(method=method, max_tokens=n, ignore_eos=True) for n in caps]
    done = pairs.run(loop, [prompt] * len(caps), params)
    longest = done[-1].token_ids
    for cap, completion in zip(caps, done, strict=True):
        assert completion.token_ids == longest[:cap]
        assert completion.finish_reason == "length"
        assert completion.stats.completion_tokens == cap


def sequence_for(loop: Loop, **settings: object) -> Sequence:
    """A sequence whose prompt fills its blocks, so that the open block is all answer."""
    size = size_of(loop)
    params = DecodeParams(**settings).resolve(size)  # type: ignore[arg-type]
    return Sequence(Request("s", [5] * size, params), loop.target.info, TextStream(loop.tokenizer, params.stop))


def decided(cached: int, reveals: list[tuple[int, int]], steps: int) -> Verdict:
    return Verdict(cached, [BlockVerdict(reveals, ["denoised"] * len(reveals), steps=steps)])


def letters(loop: Loop, text: str) -> list[int]:
    return [loop.tokenizer.encode(letter)[0] for letter in text]


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_eos_two_places_before_the_cap(loop: Loop, order: str) -> None:
    """EOS ends the answer only when everything before it is revealed; nothing after it is returned."""
    size = size_of(loop)
    sequence = sequence_for(loop, max_tokens=size)
    eos = loop.target.info.eos_token_ids[0]
    block = letters(loop, "abcdefgh"[:size])
    block[size - 3] = eos
    reveals = list(enumerate(block))
    tokens: list[int] = []
    text = ""
    for reveal in reveals if order == "forward" else reveals[::-1]:
        if sequence.finish_reason is None:
            for output in sequence.apply(decided(size, [reveal], 1)):
                tokens += output.token_ids
                text += output.text
    assert sequence.finish_reason == "stop"
    assert tokens == block[: size - 3]
    assert text == "abcdefgh"[: size - 3]
    assert sequence.stats.completion_tokens == size - 3


def test_eos_after_the_cap_is_length(loop: Loop) -> None:
    size = size_of(loop)
    sequence = sequence_for(loop, max_tokens=size - 2)
    block = letters(loop, "abcdefgh"[:size])
    block[size - 2] = loop.target.info.eos_token_ids[0]
    outputs = sequence.apply(decided(size, list(enumerate(block)), size))
    assert outputs[-1].finish_reason == "length"
    assert outputs[-1].token_ids == block[: size - 2]


def test_every_eos_id_ends_an_answer(loop: Loop) -> None:
    assert len(loop.target.info.eos_token_ids) == 2
    for eos in loop.target.info.eos_token_ids:
        sequence = sequence_for(loop, max_tokens=2 * size_of(loop))
        outputs = sequence.apply(decided(0, [(0, letters(loop, "a")[0]), (1, eos)], 2))
        assert outputs[-1].finish_reason == "stop"


def test_stop_string_across_a_block_border(loop: Loop) -> None:
    """The stop begins in one block and ends in the next; not a character of it is shown, streamed or not."""
    size = size_of(loop)
    stop = "abcdefgh"[size - 2 : size] + "xy"
    sequence = sequence_for(loop, max_tokens=4 * size, stop=(stop,))
    first, second = letters(loop, "abcdefgh"[:size]), letters(loop, "xyzzyxyz"[:size])
    text, tokens = "", []
    for block in (first, second):
        for reveal in enumerate(block):
            for output in sequence.apply(decided(0, [reveal], 1)):
                text += output.text
                tokens += output.token_ids
            if sequence.finish_reason:
                break
    assert text == "abcdefgh"[: size - 2]
    assert tokens == first[: size - 2]
    assert sequence.finish_reason == "stop"


def test_a_verdict_on_two_blocks(loop: Loop) -> None:
    """Both become visible in one output; what lies behind an end in the first is not looked at."""
    size, first, second = size_of(loop), letters(loop, "abcdefgh"), letters(loop, "xyzzyxyz")

    def verdict(*blocks: list[int]) -> Verdict:
        reveals = [list(enumerate(block)) for block in blocks]
        return Verdict(size, [BlockVerdict(each, ["accepted"] * len(each), steps=len(each)) for each in reveals])

    sequence = sequence_for(loop, max_tokens=3 * size)
    [output] = sequence.apply(verdict(first[:size], second[: size - 1]))
    assert output.text == "abcdefgh"[:size] + "xyzzyxyz"[: size - 1]
    assert (sequence.block.start, sequence.block.left, len(sequence.tokens)) == (2 * size, 1, 2 * size)
    ended = sequence_for(loop, max_tokens=3 * size)
    eos = loop.target.info.eos_token_ids[0]
    [output] = ended.apply(verdict([*first[: size - 1], eos], second[:size]))
    assert (output.text, output.finish_reason) == ("abcdefgh"[: size - 1], "stop")


@pytest.mark.parametrize("method", METHODS)
def test_stop_strings_end_real_answers(loop: Loop, method: str) -> None:
    prompt = pairs.chat(QUESTION)
    params = DecodeParams(method=method, max_tokens=48)
    whole, cut = pairs.run(loop, [prompt, prompt], [params, dataclasses.replace(params, stop=("Paris",))])
    assert "Paris" in whole.text
    assert cut.text == whole.text[: whole.text.index("Paris")]
    assert cut.finish_reason == "stop"
    assert whole.token_ids[: len(cut.token_ids)] == cut.token_ids


def test_mask_tokens_are_refused(loop: Loop) -> None:
    """As text and as an id; a prompt that smuggled one in would be denoised."""
    mask = loop.target.info.mask_token_id
    text = loop.tokenizer.token_name(mask)
    with pytest.raises(RequestError, match="mask token"):
        pairs.chat(f"say {text}")
    with pytest.raises(RequestError, match="mask token"):
        pairs.run(loop, [[5, mask, 6]], [DecodeParams()])


def test_context_limit(loop: Loop) -> None:
    """A prompt that fits to the token is served; one more is refused, and says by how much."""
    assert isinstance(loop.target, LocalClient)
    limit, size = loop.target.info.max_model_len, size_of(loop)
    prompt = (pairs.chat(QUESTION) * limit)[: limit - size]
    done = pairs.run(loop, [prompt], [DecodeParams(max_tokens=size, ignore_eos=True)])
    assert len(done[0].token_ids) == size
    with pytest.raises(ContextLengthError, match=str(limit)):
        pairs.run(loop, [prompt], [DecodeParams(max_tokens=size + 1)])


def test_empty_prompt(loop: Loop) -> None:
    with pytest.raises(RequestError, match="empty"):
        pairs.run(loop, [[]], [DecodeParams()])
