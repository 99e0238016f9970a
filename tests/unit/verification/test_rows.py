"""Who sees whom: the one visibility function against the paper in plain words, and what each layout promises."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simsd.verification.rows import DATA, MASK, NEVER, TRUNK, Rows
from simsd.verification.visibility import visibility

MASK_ID = 999


@dataclass(frozen=True)
class Fact:
    block: int
    branch: int
    kind: int
    tau: int


def sees(i: Fact, j: Fact) -> bool:
    """The paper, section 3, word for word; written apart from the code under test."""
    if j.block != i.block:
        return j.branch == TRUNK and j.block < i.block  # committed rows of earlier blocks, and nothing else
    if j.branch != i.branch:
        return False
    if i.kind == DATA and j.kind == DATA:
        return j.tau <= i.tau
    if i.kind == DATA and j.kind == MASK:
        return j.tau > i.tau
    if i.kind == MASK and j.kind == DATA:
        return j.tau < i.tau
    return j.tau >= i.tau


def seen_of(facts: list[Fact]) -> list[list[bool]]:
    columns = [np.array([getattr(f, name) for f in facts]) for name in ("block", "branch", "kind", "tau")]
    return visibility(*columns).tolist()


def seen_in(rows: Rows) -> Tensor:
    facts = (rows.block, rows.branch, rows.kind, rows.tau)
    return torch.from_numpy(visibility(*map(np.array, facts)))


steps = st.integers(0, 16) | st.just(NEVER)
facts = st.builds(Fact, st.integers(0, 3), st.sampled_from([TRUNK, 0, 1, 2]), st.sampled_from([DATA, MASK]), steps)


@settings(max_examples=100, deadline=None)
@given(st.lists(facts, min_size=1, max_size=24))
def test_any_rows_against_the_four_rules(rows: list[Fact]) -> None:
    assert seen_of(rows) == [[sees(i, j) for j in rows] for i in rows]


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, min_size=1, max_size=16))
def test_paired_sections_of_any_step_order(order: list[int]) -> None:
    """A data and a mask section of B up to 16 positions after a committed block; ties and never-revealed positions."""
    rows = [Fact(0, TRUNK, DATA, 0)] * 2
    rows += [Fact(1, 0, DATA, tau) for tau in order] + [Fact(1, 0, MASK, tau) for tau in order]
    seen = seen_of(rows)
    assert seen == [[sees(i, j) for j in rows] for i in rows]
    assert all(row[0] and row[1] for row in seen)  # everyone sees the prefix
    assert all(seen[i][i] for i in range(len(rows)))  # and itself: no row of the softmax is empty


def test_four_rules_by_hand() -> None:
    """Positions a, b, c revealed at steps 2, 1, never: data rows a b c, then mask rows a b c."""
    rows = [Fact(0, 0, DATA, 2), Fact(0, 0, DATA, 1), Fact(0, 0, DATA, NEVER)]
    rows += [Fact(0, 0, MASK, 2), Fact(0, 0, MASK, 1), Fact(0, 0, MASK, NEVER)]
    by_hand = [
        "110001",  # data a: a and b stand, c is still masked
        "010101",  # data b: itself, and the masks of a and c
        "111000",  # data c: everything is revealed
        "010101",  # mask a: b stands; masks of a and c
        "000111",  # mask b: nothing stands; all masks
        "110001",  # mask c: a and b stand; its own mask
    ]
    assert ["".join(str(int(s)) for s in row) for row in seen_of(rows)] == by_hand


def test_leading_dimensions_are_a_batch() -> None:
    generator = np.random.default_rng(0)
    facts = [generator.integers(*limits, (5, 7)) for limits in ((-1, 3), (-1, 2), (0, 2), (0, 4))]
    batched = visibility(*facts)
    assert batched.shape == (5, 7, 7)
    for i in range(5):
        assert np.array_equal(batched[i], visibility(*(f[i] for f in facts)))


@dataclass(frozen=True)
class Draft:
    """An open block and a proposal for it: some positions revealed, some of the rest drafted, in any order."""

    block: list[int]
    start: int
    offsets: list[int]
    tokens: list[int]

    def after(self, count: int) -> list[int]:
        """The block natively, once `count` candidates are revealed."""
        block = list(self.block)
        for offset, token in zip(self.offsets[:count], self.tokens[:count], strict=True):
            block[offset] = token
        return block


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    size = draw(st.integers(1, 16))
    block = draw(st.lists(st.sampled_from([MASK_ID, 1, 2]), min_size=size, max_size=size))
    block[draw(st.integers(0, size - 1))] = MASK_ID
    still_open = [offset for offset, token in enumerate(block) if token == MASK_ID]
    offsets = draw(st.permutations(still_open))[: draw(st.integers(1, len(still_open)))]
    return Draft(block, size * draw(st.integers(0, 3)), offsets, [100 + offset for offset in offsets])


def contexts(rows: Rows) -> list[list[tuple[int, int]]]:
    """What each row sees, as sorted (position, token)."""
    cells = list(zip(rows.position, rows.token, strict=True))
    return [sorted(cell for cell, seen in zip(cells, row, strict=True) if seen) for row in seen_in(rows).tolist()]


def native(draft: Draft, count: int) -> list[tuple[int, int]]:
    return list(enumerate(draft.after(count), draft.start))


@settings(max_examples=100, deadline=None)
@given(drafts())
def test_paired_row_sees_what_it_saw_at_its_own_step(draft: Draft) -> None:
    """The whole promise of SimSD's layout: one copy of each position, in the state of the row's own step."""
    rows = Rows()
    rows.paired(draft.block, draft.start, MASK_ID, draft.offsets, draft.tokens)
    rank = {offset: r for r, offset in enumerate(draft.offsets)}
    for i, context in enumerate(contexts(rows)):
        offset = rows.position[i] - draft.start
        if rows.kind[i] == MASK:  # predicts with what was revealed before; an undrafted slot comes after all candidates
            assert context == native(draft, rank.get(offset, len(rank)))
        elif offset in rank:  # a candidate is context from its own step on
            assert context == native(draft, rank[offset] + 1)
        else:  # revealed earlier: sees the whole open block's masks, no candidate
            assert context == native(draft, 0)


@settings(max_examples=100, deadline=None)
@given(drafts())
def test_paired_wants_a_prediction_of_every_open_position(draft: Draft) -> None:
    rows = Rows()
    rows.paired(draft.block, draft.start, MASK_ID, draft.offsets, draft.tokens)
    still_open = [offset for offset, token in enumerate(draft.block) if token == MASK_ID]
    assert [rows.position[i] - draft.start for i in rows.wants] == still_open
    assert all(rows.token[i] == MASK_ID and rows.kind[i] == MASK for i in rows.wants)
    assert len(rows) == len(draft.block) + len(draft.offsets)
    assert rows.kept == 0


def test_unaligned_numbers_mask_slots_onward_and_changes_nothing_else() -> None:
    aligned, unaligned = Rows(), Rows()
    block, order = [7, MASK_ID, MASK_ID, MASK_ID], [3, 1]
    aligned.paired(block, 8, MASK_ID, order, [30, 10])
    unaligned.paired(block, 8, MASK_ID, order, [30, 10], aligned=False)
    assert aligned.position == [8, 9, 11, 9, 10, 11]
    assert unaligned.position == [8, 9, 11, 13, 14, 15]
    assert torch.equal(seen_in(aligned), seen_in(unaligned))
    assert aligned.token == unaligned.token == [7, 10, 30, MASK_ID, MASK_ID, MASK_ID]


def test_denoise_rows_all_see_each_other() -> None:
    rows = Rows()
    rows.denoise([MASK_ID, 5, MASK_ID, 6], 12, MASK_ID)
    assert seen_in(rows).all()
    assert rows.wants == [0, 2]
    assert rows.position == [12, 13, 14, 15]
    assert rows.kind == [MASK, DATA, MASK, DATA]


def test_commits_are_block_causal_and_never_see_the_open_block() -> None:
    """Two blocks of 2 committed and the next one denoised in the same rows: the folded commit."""
    rows = Rows()
    rows.commit([1, 2, 3, 4], 4, 2)
    rows.denoise([MASK_ID, 9], 8, MASK_ID)
    by_hand = ["110000", "110000", "111100", "111100", "111111", "111111"]
    assert ["".join(str(int(s)) for s in row) for row in seen_in(rows).tolist()] == by_hand
    assert rows.kept == 4
    assert rows.wants == [4]
    assert rows.position == [4, 5, 6, 7, 8, 9]


@settings(max_examples=50, deadline=None)
@given(drafts(), st.integers(0, 2))
def test_branches_see_the_commit_and_themselves(draft: Draft, committed: int) -> None:
    """One copy of the block per drafted state: each as if it were alone after the committed blocks."""
    size = len(draft.block)
    rows = Rows()
    start = draft.start + committed * size
    rows.commit(list(range(committed * size)), draft.start, size)
    for count in range(len(draft.offsets) + 1):
        rows.denoise(draft.after(count), start, MASK_ID, branch=count)
    seen = contexts(rows)
    prefix = [(draft.start + i, i) for i in range(committed * size)]
    for count in range(len(draft.offsets) + 1):
        for i in range(rows.kept + count * size, rows.kept + (count + 1) * size):
            assert seen[i] == sorted(prefix + list(enumerate(draft.after(count), start)))


@settings(max_examples=50, deadline=None)
@given(drafts(), st.integers(0, 1), st.booleans())
def test_a_block_beyond_sees_the_blocks_before_it_as_they_were_drafted(
    draft: Draft, committed: int, paired: bool
) -> None:
    """A commit, the open block, that block as drafted, and the next one: each row as if it were alone there."""
    size, rows = len(draft.block), Rows()
    start = draft.start + committed * size
    rows.commit(list(range(committed * size)), draft.start, size)
    filled = [7 if token == MASK_ID else token for token in draft.after(len(draft.offsets))]
    following = [MASK_ID] * size
    for block, first in ((draft.block, start), (following, start + size)):
        if first > start:
            rows.assume(filled, start, size)
        if paired:
            order = [offset for offset, token in enumerate(block) if token == MASK_ID]
            rows.paired(block, first, MASK_ID, order, [100 + offset for offset in order])
        else:
            rows.denoise(block, first, MASK_ID, branch=0)
            rows.denoise(block, first, MASK_ID, branch=1)
    seen = contexts(rows)
    prefix = {(draft.start + i, i) for i in range(committed * size)}
    assumed = set(enumerate(filled, start))
    for i, (index, context) in enumerate(zip(rows.block, seen, strict=True)):
        if i < rows.kept:
            continue
        before = {cell for cell in context if cell[0] < index * size}
        own = [cell for cell in context if cell[0] >= index * size]
        assert before == (prefix | assumed if index * size > start else prefix)
        assert sorted(position for position, _ in own) == list(range(index * size, (index + 1) * size))
    assert [rows.token[row] for row in rows.assumed] == filled
    assert [seen[row] for row in rows.assumed] == [sorted(prefix | assumed)] * size
