"""A block's state: what a reveal makes of it, where its answer ends, what follows; for one block and for two."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsd.block.successor import next_work, tokens_to_draft
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, Fallback
from simsd.messages.round import BlockVerdict, Verdict, Work
from tests.unit.numbers import info_of

MASK, EOS = 3, 2
OPEN = BlockState(8, (MASK,) * 4, MASK)
INFO = info_of(mask_token_id=MASK, eos_token_ids=(EOS,))


def test_a_prompts_tail_opens_a_block() -> None:
    block = BlockState.behind(8, [50, 51], 4, MASK)
    assert (block.tokens, block.open_offsets, block.left, block.size) == ((50, 51, MASK, MASK), [2, 3], 2, 4)
    assert (block.step, block.fresh, block.full) == (0, True, False)


def test_reveals_add_up() -> None:
    block = OPEN.reveal([(2, 60)], 1)
    assert (block.tokens, block.step, block.fresh) == ((MASK, MASK, 60, MASK), 1, False)
    block = block.reveal([(0, 61), (3, 62)], 2)
    assert (block.tokens, block.step, block.open_offsets) == ((61, MASK, 60, 62), 3, [1])
    assert OPEN.tokens == (MASK,) * 4  # a state does not change
    full = block.reveal([(1, 63)], 1)
    assert full.full
    assert full.following() == BlockState(12, (MASK,) * 4, MASK)


def test_only_open_positions_are_revealed() -> None:
    with pytest.raises(AssertionError, match="again"):
        OPEN.reveal([(1, 60)], 1).reveal([(1, 61)], 1)


def test_a_block_stays_fresh_until_a_token_is_decoded() -> None:
    assert OPEN.reveal([], 1).fresh
    assert OPEN.reveal([(0, 60)], 0, decoded=False).fresh
    assert not OPEN.reveal([(0, 60)], 0).fresh


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "end"),
    [  # the block begins at position 8, the answer at 9
        ((50, MASK, 51, 52), 20, (9, None)),
        ((50, 51, 52, MASK), 20, (11, None)),
        ((50, 51, 52, 53), 20, (12, None)),
        ((50, 51, EOS, MASK), 20, (10, "stop")),
        ((50, MASK, EOS, 53), 20, (9, None)),  # not seen yet
        ((EOS, 51, 52, 53), 20, (12, None)),  # the prompt's
        ((50, 51, 52, 53), 2, (11, "length")),
        ((50, 51, 52, MASK), 2, (11, "length")),
        ((50, 51, 52, EOS), 2, (11, "length")),  # behind the limit
        ((50, 51, EOS, 53), 2, (10, "stop")),
        ((50, EOS, 52, 53), 2, (9, "stop")),
    ],
)
def test_where_an_answer_ends(tokens: tuple[int, ...], max_tokens: int, end: tuple[int, str | None]) -> None:
    block, params = BlockState(8, tokens, MASK), DecodeParams(max_tokens=max_tokens)
    assert block.visible_end(params, 9, (EOS,)) == end
    ignoring = block.visible_end(dataclasses.replace(params, ignore_eos=True), 9, (EOS,))
    assert ignoring[1] != "stop"
    if end[1] != "stop":
        assert ignoring == end


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(6, 12), st.integers(1, 8))
def test_an_end_against_reading_token_by_token(tokens: list[int], prompt_tokens: int, max_tokens: int) -> None:
    block, params = BlockState(8, tuple(tokens), MASK), DecodeParams(max_tokens=max_tokens)
    expected: tuple[int, str | None] = (12, None)
    for position, token in enumerate(tokens, start=8):
        if position >= prompt_tokens + max_tokens:
            expected = (prompt_tokens + max_tokens, "length")
        elif token == MASK:
            expected = (position, None)
        elif token == EOS and position >= prompt_tokens:
            expected = (position, "stop")
        else:
            continue
        break
    else:
        if prompt_tokens + max_tokens <= 12:
            expected = (prompt_tokens + max_tokens, "length")
    found = block.visible_end(params, prompt_tokens, (EOS,))
    if prompt_tokens + max_tokens >= 8:  # what ended in an earlier block is not looked at
        assert found == expected


@pytest.mark.parametrize(
    ("fallback", "revealed", "drafted"),
    [("redraft", 0, 3), ("redraft", 2, 2), ("target", 0, 3), ("target", 1, 3), ("target", 2, 0)],
)
def test_how_many_are_drafted(fallback: Fallback, revealed: int, drafted: int) -> None:
    params = DecodeParams(gamma=3, fallback=fallback)
    assert tokens_to_draft(params, OPEN.reveal([(i, 60) for i in range(revealed)], revealed)) == drafted


def test_a_fresh_block_is_drafted_as_far_as_it_is_open() -> None:
    params = DecodeParams(gamma=3, fallback="target")
    assert tokens_to_draft(params, BlockState.behind(8, [50, 51], 4, MASK)) == 2


def work(block: BlockState, commit: list[int]) -> Work:
    params = DecodeParams(method="vanilla", max_tokens=30).resolve(4)
    return Work("w", params, 40, block.start - len(commit), commit, 4, block, 0, prompt_tokens=6)


def test_the_target_goes_on_where_a_verdict_leaves_it() -> None:
    asked = work(OPEN, [40, 41, 42, 43])
    verdict = Verdict(8, [BlockVerdict([(1, 60)], ["denoised"], steps=1)])
    following = next_work(asked, verdict, INFO)
    assert following == dataclasses.replace(asked, start=8, commit=[], block=OPEN.reveal([(1, 60)], 1))


def test_a_chain_of_two_blocks() -> None:
    """The first is filled and owed; the second is left open where its verdict ends."""
    filled = BlockVerdict([(i, 60 + i) for i in range(4)], ["accepted"] * 4, steps=4)
    behind = BlockVerdict([(3, 70)], ["recovered"], steps=1)
    following = next_work(work(OPEN, [40, 41, 42, 43]), Verdict(8, [filled, behind]), INFO)
    assert following is not None
    assert (following.start, following.commit) == (8, [60, 61, 62, 63])
    assert following.block == BlockState(12, (MASK, MASK, MASK, 70), MASK, step=1, fresh=False)


def test_nothing_follows_an_end() -> None:
    for block in ([(0, EOS)], [(0, 60), (1, EOS)]):
        verdict = Verdict(8, [BlockVerdict(block, ["denoised"] * len(block), steps=1)])
        assert next_work(work(OPEN, []), verdict, INFO) is None
    hidden = Verdict(8, [BlockVerdict([(1, EOS)], ["denoised"], steps=1)])
    assert next_work(work(OPEN, []), hidden, INFO) is not None
