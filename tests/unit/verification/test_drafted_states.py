"""Which drafted states an `exact` verification looks at."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsd.block.remasking import quota
from simsd.messages.request import DecodeParams, Remasking
from simsd.messages.round import DraftedBlock
from simsd.verification.drafted_states import chain_states, drafted_states


def proposal_of(offsets: list[int], confidence: list[float]) -> DraftedBlock:
    return DraftedBlock.greedy(offsets, [10 + offset for offset in offsets], confidence)


def states_of(
    offsets: list[int], confidence: list[float], budget: int, step: int = 0, size: int = 4, **settings_of: object
) -> list[int]:
    """Of a block of which nothing is revealed yet."""
    params = DecodeParams(method="exact", **settings_of).resolve(size)  # type: ignore[arg-type]
    return drafted_states(proposal_of(offsets, confidence), params, step, size, size, budget)


@st.composite
def cases(draw: st.DrawFn) -> tuple[DraftedBlock, DecodeParams, int, int, int]:
    """proposal, settings, step, block size, budget"""
    size = draw(st.integers(1, 8))
    offsets = draw(st.permutations(range(size)))[: draw(st.integers(1, size))]
    confidence = draw(st.lists(st.floats(0, 1, width=32), min_size=len(offsets), max_size=len(offsets)))
    remasking: Remasking = draw(st.sampled_from(["static", "dynamic", "sequential", "entropy"]))
    params = DecodeParams(method="exact", remasking=remasking, steps=draw(st.integers(1, size))).resolve(size)
    return proposal_of(offsets, confidence), params, draw(st.integers(0, 4)), size, draw(st.integers(1, 40))


@settings(max_examples=100, deadline=None)
@given(cases())
def test_any_list_starts_at_the_block_keeps_its_budget_and_leaves_out_the_full_block(
    case: tuple[DraftedBlock, DecodeParams, int, int, int],
) -> None:
    proposal, params, step, size, budget = case
    count = len(proposal.offsets)
    for opened in range(count, size + 1):
        listed = drafted_states(proposal, params, step, size, opened, budget)
        assert listed[0] == 0
        assert len(listed) == len(set(listed)) <= budget
        assert all(0 <= state < 1 << count for state in listed)
        assert (1 << count) - 1 not in listed or count < opened


@settings(max_examples=100, deadline=None)
@given(cases())
def test_every_state_is_reached_through_listed_ones(case: tuple[DraftedBlock, DecodeParams, int, int, int]) -> None:
    """A step takes as many entries as it owes at least (the proposal may have fewer): rows are not spent on islands."""
    proposal, params, step, size, budget = case
    listed = drafted_states(proposal, params, step, size, size, budget)
    least = min(quota(s, params.steps, size) for s in range(step, step + size))
    for index, state in enumerate(listed[1:], 1):
        earlier = [parent for parent in listed[:index] if parent & state == parent]
        taken = [(state ^ parent).bit_count() for parent in earlier]
        if params.remasking == "dynamic":
            assert any(count >= least for count in taken)
        else:
            most = max(quota(s, params.steps, size) for s in range(step, step + size))
            assert any(least <= count <= most for count in taken)


@pytest.mark.parametrize("confidence", [[0.9, 0.8, 0.7, 0.6], [0.5] * 4, [0.9, 0.1, 0.1, 0.1], [0.2, 0.9, 0.4, 0.6]])
@pytest.mark.parametrize("remasking", ["static", "entropy"])
def test_all_proper_subsets_of_a_block_of_four(confidence: list[float], remasking: str) -> None:
    """15 states are every open subset of the draft's block: then only tokens must agree, not orders."""
    assert sorted(states_of([2, 0, 3, 1], confidence, 15, remasking=remasking)) == list(range(15))
    assert sorted(states_of([2, 0, 3, 1], confidence, 100, remasking=remasking)) == list(range(15))


@pytest.mark.parametrize(
    ("steps", "step", "sizes"),
    [(4, 0, [0, 1, 2, 3]), (2, 0, [0, 2]), (3, 0, [0, 2, 3]), (3, 1, [0, 1, 2, 3]), (1, 0, [0])],
)
def test_sequential_is_a_chain_from_the_left(steps: int, step: int, sizes: list[int]) -> None:
    """Bits number the entries in step order; offsets 2, 0, 3, 1 are revealed from offset 0 on."""
    order = [1, 3, 0, 2]  # entries by their offset
    chain = [sum(1 << entry for entry in order[:size]) for size in sizes]
    assert states_of([2, 0, 3, 1], [0.3, 0.9, 0.5, 0.7], 15, step, steps=steps, remasking="sequential") == chain


@settings(max_examples=60, deadline=None)
@given(cases())
def test_sequential_chain_of_any_size(case: tuple[DraftedBlock, DecodeParams, int, int, int]) -> None:
    proposal, params, step, size, budget = case
    params = DecodeParams(method="exact", remasking="sequential", steps=params.steps).resolve(size)
    by_offset = sorted(range(len(proposal.offsets)), key=proposal.offsets.__getitem__)
    lengths = accumulate((quota(step + i, params.steps, size) for i in range(size)), initial=0)
    lengths = [length for length in lengths if length <= len(by_offset)]
    chain = [sum(1 << i for i in by_offset[:length]) for length in lengths if length < size]
    assert drafted_states(proposal, params, step, size, size, budget) == chain[:budget]


@pytest.mark.parametrize(
    ("steps", "opened", "listed"),
    [
        (4, 3, [0, 1, 2, 3]),  # the third position is open after both: its step is seen, too
        (4, 2, [0, 1, 2]),  # both fill the block
        (2, 4, [0, 3]),  # two at a step, and both were drafted
        (2, 2, [0]),
        (1, 4, [0]),  # the first step must reveal more than was drafted
        (3, 4, [0, 3]),  # two, then one
    ],
)
def test_all_drafted_tokens_are_a_state_unless_they_fill_the_block(steps: int, opened: int, listed: list[int]) -> None:
    drafted = proposal_of([2, 0], [0.8, 0.7])
    params = DecodeParams(method="exact", steps=steps)
    assert sorted(drafted_states(drafted, params, 0, 4, opened, 8)) == listed


def test_dynamic_takes_all_above_the_threshold_together() -> None:
    """.95 and .92 in one step, then .5, then .4 would fill it."""
    listed = states_of([2, 0, 3, 1], [0.95, 0.5, 0.92, 0.4], 15, remasking="dynamic", threshold=0.9)
    assert listed == [0b0000, 0b0101, 0b0111]


def test_several_at_a_step_follow_the_confidence() -> None:
    """Two steps for four positions: the two surest are guessed to come first."""
    assert states_of([2, 0, 3, 1], [0.3, 0.9, 0.5, 0.7], 15, steps=2) == [0, 0b1010]


@pytest.mark.timeout(20)
def test_work_is_bounded_by_the_budget() -> None:
    """32 drafted positions have 4 billion subsets; the budget's states are found at once."""
    listed = states_of(list(range(32)), [0.9 - i / 100 for i in range(32)], 24, size=32)
    assert len(listed) == 24


def test_a_small_budget_goes_to_the_likeliest_states() -> None:
    confidence = [0.9, 0.3, 0.8, 0.2]
    assert states_of([2, 0, 3, 1], confidence, 1) == [0]
    assert states_of([2, 0, 3, 1], confidence, 2) == [0, 0b0001]
    assert set(states_of([2, 0, 3, 1], confidence, 4)) == {0, 0b0001, 0b0100, 0b0101}


@pytest.mark.parametrize("confidence", [[0.99, 0.98, 0.97, 0.96], [1.0] * 4])
@pytest.mark.parametrize("remasking", ["static", "entropy"])
def test_all_proper_subsets_of_a_sure_block_of_four(confidence: list[float], remasking: str) -> None:
    """15 states are every open subset of the draft's block: then only tokens must agree, not orders."""
    assert sorted(states_of([2, 0, 3, 1], confidence, 15, remasking=remasking)) == list(range(15))


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[DraftedBlock], DecodeParams, int, int, int]:
    """drafted blocks, settings, step, block size, row budget; the first block may be open in part only"""
    size = draw(st.integers(1, 5))
    blocks = []
    for index in range(draw(st.integers(1, 5))):
        offsets = draw(st.permutations(range(size)))[: draw(st.integers(1, size)) if index == 0 else size]
        confidence = draw(st.lists(st.floats(0, 1, width=32), min_size=len(offsets), max_size=len(offsets)))
        blocks.append(proposal_of(list(offsets), confidence))
    remasking: Remasking = draw(st.sampled_from(["static", "dynamic", "sequential", "entropy"]))
    params = DecodeParams(method="exact", remasking=remasking, steps=draw(st.integers(1, size))).resolve(size)
    return blocks, params, draw(st.integers(0, 4)), size, draw(st.integers(0, 60))


@settings(max_examples=100, deadline=None)
@given(chains())
def test_a_chain_keeps_its_budget_and_begins_each_block_at_its_beginning(
    case: tuple[list[DraftedBlock], DecodeParams, int, int, int],
) -> None:
    blocks, params, step, size, budget = case
    listed = chain_states(blocks, params, step, size, len(blocks[0].offsets), budget)
    assert 1 <= len(listed) <= len(blocks)
    rows = sum(len(states) for states in listed) * size + (len(listed) - 1) * size
    assert rows <= max(budget, size)
    for states, drafted in zip(listed, blocks, strict=False):
        full = (1 << len(drafted.offsets)) - 1
        assert states[0] == 0
        assert len(states) == len(set(states))
        assert all(0 <= state < full for state in states)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_chain_of_one_block_is_that_block(case: tuple[DraftedBlock, DecodeParams, int, int, int]) -> None:
    proposal, params, step, size, budget = case
    for opened in {len(proposal.offsets), size}:
        listed = drafted_states(proposal, params, step, size, opened, budget)
        assert chain_states([proposal], params, step, size, opened, budget * size) == [listed]


def test_blocks_beyond_are_worth_the_chance_to_get_there() -> None:
    """From left to right, two positions a block; the chance to get from each state to the next is the confidence."""
    params = DecodeParams(method="exact", remasking="sequential").resolve(2)

    def listed(copies: int, *confidence: list[float]) -> list[list[int]]:
        return chain_states([proposal_of([0, 1], each) for each in confidence], params, 0, 2, 2, 2 * copies)

    sure, doubtful = [0.9, 0.9], [0.5, 0.5]
    # Worth 1 and .9; then .81 and .729 in the second block; then .656 and .59 in the third. Blocks between cost a copy.
    chain = [sure, sure, sure]
    assert listed(1, *chain) == [[0]]
    assert listed(2, *chain) == [[0, 1]]
    assert listed(3, *chain) == [[0, 1]]
    assert listed(4, *chain) == [[0, 1], [0]]
    assert listed(5, *chain) == [[0, 1], [0, 1]]
    assert listed(7, *chain) == [[0, 1], [0, 1], [0]]
    assert listed(99, *chain) == [[0, 1], [0, 1], [0, 1]]
    assert listed(5, doubtful, sure) == [[0, 1], [0, 1]]


def test_the_step_counts_anew_in_each_block() -> None:
    """Three steps for four positions reveal two, one, one; the first block has had its first step."""
    params = DecodeParams(method="exact", remasking="sequential", steps=3).resolve(4)
    blocks = [proposal_of([2, 3], [0.9] * 2), proposal_of([0, 1, 2, 3], [0.9] * 4)]
    assert chain_states(blocks, params, 1, 4, 2, 400) == [[0, 0b01], [0, 0b0011, 0b0111]]
