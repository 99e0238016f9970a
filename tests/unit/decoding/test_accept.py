"""The accept rules: hand-worked tables, speculative sampling's distributions, the walk against the target alone."""

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from simsd.decoding.verdicts import Judged, judge, look_at
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, Method, Remasking, RevealKind
from simsd.messages.round import DraftedBlock, Proposal, Work
from simsd.verification.accept import Decision, Scores, Slots, TokenTests, add_bonus, denoise_step, keep_prefix, walk
from simsd.verification.rows import Rows
from simsd.verification.schemes import Limits, Want
from tests.unit.numbers import drafted, info_of, rejected_or_not, stacked

UNLIKELY = 1e-3
MASK_ID = 3


def drafted_of(offsets: list[int], tokens: list[int]) -> DraftedBlock:
    """A greedy one: no q."""
    return DraftedBlock.greedy(offsets, tokens, [0.9] * len(offsets))


@pytest.mark.parametrize(
    ("accepted", "reveals", "stood", "counts"),
    [  # drafted right to left: 3 then 0 then 2; recovered tokens are 70, 71, 72; counts: steps, accepted, recovered
        ([True, True, True], [(3, 13), (0, 10), (2, 12)], True, (3, 3, 0)),
        ([True, True, False], [(3, 13), (0, 10), (2, 72)], False, (3, 2, 1)),
        ([True, False, True], [(3, 13), (0, 71)], False, (2, 1, 1)),  # the hole at 1 and 2 stays, 13 stays at 3
        ([False, True, True], [(3, 70)], False, (1, 0, 1)),
    ],
)
def test_first_rejection_in_step_order_ends_it(
    accepted: list[bool], reveals: list[tuple[int, int]], stood: bool, counts: tuple[int, int, int]
) -> None:
    decision, tests = Decision(), TokenTests([5, 6, 7], accepted, [70, 71, 72])
    assert keep_prefix(decision, drafted_of([3, 0, 2], [13, 10, 12]), tests) is stood
    assert decision.reveals == reveals
    assert decision.rows == [5, 6, 7][: len(reveals)]
    assert (decision.steps, decision.kinds.count("accepted"), decision.kinds.count("recovered")) == counts
    assert decision.drafted == 3


def test_bonus_position_comes_from_the_distribution_not_from_the_sample() -> None:
    """Row 5's sample is the more confident one, row 6's distribution the surer one."""
    scores = Scores([0] * 5 + [50, 60, 70], [0.0] * 5 + [0.6, 0.1, 0.2], [0.0] * 5 + [0.6, 0.8, 0.8], [0.0] * 8)
    decision = Decision()
    add_bonus(decision, DecodeParams(), Slots([1, 2, 3], [5, 6, 7]), scores)
    assert decision.reveals == [(2, 60)]  # ties go to the left
    assert (decision.kinds, decision.steps) == (["bonus"], 1)
    leftmost = Decision()
    add_bonus(leftmost, DecodeParams(remasking="sequential"), Slots([1, 2, 3], [5, 6, 7]), scores)
    assert leftmost.reveals == [(1, 50)]


def test_no_bonus_where_everything_was_drafted() -> None:
    decision = Decision()
    add_bonus(decision, DecodeParams(), Slots([], []), Scores([], [], [], []))
    assert decision == Decision()


P = torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2])
Q = torch.tensor([0.3, 0.1, 0.2, 0.35, 0.05])


def wants_of(count: int, draft_top_k: int = 64) -> list[Want]:
    """`count` requests that differ by their seed."""
    return [(DecodeParams(temperature=1.0, seed=seed, draft_top_k=draft_top_k), 17, 2) for seed in range(count)]


def frequencies_are(tokens: Tensor, probs: Tensor) -> bool:
    """Chi-square of the tokens' counts against `probs`; tokens of probability 0 must not occur."""
    counts = torch.bincount(tokens, minlength=len(probs)).numpy()
    possible = (probs > 0).numpy()
    if counts[~possible].any() or possible.sum() == 1:
        return not counts[~possible].any()
    expected = probs.double().numpy()[possible]
    return bool(stats.chisquare(counts[possible], expected / expected.sum() * counts.sum()).pvalue > UNLIKELY)


@pytest.mark.parametrize("token", range(5))
def test_acceptance_frequency_and_recovered_distribution(token: int) -> None:
    """Over many seeds: accepted with probability min(1, p / q), replaced by a draw from norm(max(0, p - q))."""
    count = 20_000
    tokens, ids = torch.full((count,), token), torch.arange(5).expand(count, -1)
    log_p = P.log().expand(count, -1)
    accepted, recovered = rejected_or_not(log_p, wants_of(count), tokens, ids, Q.expand(count, -1))
    expected = min(1.0, (P[token] / Q[token]).item())
    if expected in (0.0, 1.0):
        assert accepted.all() if expected else not accepted.any()
    else:
        assert stats.binomtest(int(accepted.sum()), count, expected).pvalue > UNLIKELY
    residual = (P - Q).clamp(min=0)
    assert frequencies_are(recovered, residual / residual.sum())
    if 0 < expected < 1:  # also where it is used: the replacement is independent of the test
        assert frequencies_are(recovered[~accepted], residual / residual.sum())


@pytest.mark.parametrize("draft_top_k", [1, 2, 64])
def test_output_is_distributed_as_the_target(draft_top_k: int) -> None:
    """Draft from q (cut to its top-k), test, recover: what stands is distributed as p, whatever q is."""
    count = 20_000
    wants, log_p = wants_of(count, draft_top_k), P.log().expand(count, -1)
    tokens, each = drafted(Q.log().expand(count, -1), wants)
    ids, q = stacked(each)
    cut = torch.where(Q.topk(min(draft_top_k, 5)).values[-1] > Q, 0.0, Q)
    assert frequencies_are(tokens, cut / cut.sum())
    accepted, recovered = rejected_or_not(log_p, wants, tokens, ids, q)
    assert frequencies_are(torch.where(accepted, tokens, recovered), P)
    assert 0.1 < accepted.float().mean() < 0.9
    assert not frequencies_are(tokens, P)  # the test can tell p from q
    everything = rejected_or_not(log_p, wants, tokens, ids, torch.zeros_like(q))[
        1
    ]  # recovering from p itself is biased
    assert not frequencies_are(torch.where(accepted, tokens, everything), P)


def test_equal_distributions_are_always_accepted() -> None:
    count = 2_000
    wants, log_q = wants_of(count), Q.log().expand(count, -1)
    tokens, each = drafted(log_q, wants)
    ids, q = stacked(each)
    accepted, recovered = rejected_or_not(log_q, wants, tokens, ids, q)
    assert accepted.float().mean() > 0.999  # but for rounding
    assert ((recovered >= 0) & (recovered < 5)).all()


def test_where_nothing_is_above_q_the_token_stands() -> None:
    """p = q to the last bit leaves nothing to recover from; no draw of the accept test may reject there."""
    log_p, ids = torch.tensor([[0.5, 0.5]]).log().expand(200, -1), torch.arange(2).expand(200, -1)
    tokens = torch.arange(200) % 2
    assert rejected_or_not(log_p, wants_of(200), tokens, ids, log_p.exp() + 1e-3)[0].all()


def test_greedy_rows_accept_the_best_token_only() -> None:
    """Tokens 8 and 7 are the best where 5 and 7 were drafted: the first falls, and 8 is there in its place."""
    asked = work_of("simsd", OPEN, drafted_of([3, 1], [5, 7]), temperature=0.0)
    certain = torch.nn.functional.one_hot(torch.tensor([7, 9, 8]), 12).float()
    [block] = judged([asked], certain)[asked.seq_id].blocks
    assert (block.reveals, block.kinds) == ([(3, 8)], ["recovered"])
    asked = work_of("simsd", OPEN, drafted_of([3, 1], [8, 7]), temperature=0.0)
    [block] = judged([asked], certain)[asked.seq_id].blocks
    assert (block.reveals, block.kinds) == ([(3, 8), (1, 7), (2, 9)], ["accepted", "accepted", "bonus"])


def test_a_row_is_judged_alike_beside_any_other() -> None:
    """q padded to the widest: the same as each alone."""
    generator = torch.Generator().manual_seed(0)
    log_p = torch.randn(60, 7, generator=generator).log_softmax(dim=1)
    log_q = torch.randn(60, 7, generator=generator).log_softmax(dim=1)
    wants: list[Want] = [(DecodeParams(temperature=1.0, seed=i, draft_top_k=3), i, i % 3) for i in range(60)]
    tokens, each = drafted(log_q, wants)
    ids, q = stacked(each)
    padded_ids, padded_q = torch.zeros(60, 5, dtype=torch.int64), torch.zeros(60, 5)
    padded_ids[:, :3], padded_q[:, :3] = ids, q
    accepted, recovered = rejected_or_not(log_p, wants, tokens, padded_ids, padded_q)
    assert accepted.any() and not accepted.all()
    for i in range(60):
        row = slice(i, i + 1)
        alone = rejected_or_not(log_p[row], wants[row], tokens[row], ids[row], q[row])
        assert (alone[0].item(), alone[1].item()) == (accepted[i].item(), recovered[i].item())


View = dict[int, tuple[int, float]]
"""Open offset -> (the target's token there, its confidence)."""


def looked_at(views: dict[int, View]) -> tuple[dict[int, Slots], Scores]:
    """The logits rows of several block states, one after the other."""
    states, tokens, confidence = {}, [], []
    for state, view in views.items():
        states[state] = Slots(sorted(view), list(range(len(tokens), len(tokens) + len(view))))
        tokens += [view[offset][0] for offset in sorted(view)]
        confidence += [view[offset][1] for offset in sorted(view)]
    return states, Scores(tokens, confidence, confidence, [1 - c for c in confidence])


@dataclass(frozen=True)
class Walk:
    """Proposal: 12 at offset 2, 10 at 0, 13 at 3 (bits 1, 2, 4); offset 1 is open and not drafted."""

    views: dict[int, View]
    reveals: list[tuple[int, int]]
    counts: tuple[int, int, int, int]
    """steps, accepted, recovered, bonus"""
    steps: int = 4
    step: int = 0


KINDS: tuple[RevealKind, ...] = ("accepted", "recovered", "bonus")
START: View = {0: (10, 0.2), 1: (11, 0.1), 2: (12, 0.9), 3: (13, 0.3)}
AFTER_2: View = {0: (10, 0.8), 1: (11, 0.1), 3: (13, 0.3)}
AFTER_20: View = {1: (11, 0.1), 3: (13, 0.3)}
AFTER_23: View = {0: (10, 0.8), 1: (11, 0.1)}


@pytest.mark.parametrize(
    "case",
    [
        Walk({0: START}, [(2, 12)], (1, 1, 0, 0)),  # agrees, but nobody looked further
        Walk({0: START, 1: AFTER_2}, [(2, 12), (0, 10)], (2, 2, 0, 0)),
        Walk({0: START, 1: AFTER_2, 3: AFTER_20}, [(2, 12), (0, 10), (3, 13)], (3, 3, 0, 0)),
        Walk({0: START, 2: AFTER_2}, [(2, 12)], (1, 1, 0, 0)),  # another state was looked at
        Walk({0: {**START, 2: (99, 0.9)}, 1: AFTER_2}, [(2, 99)], (1, 0, 1, 0)),  # its own token there
        Walk({0: START, 1: {**AFTER_2, 0: (99, 0.8)}, 3: AFTER_20}, [(2, 12), (0, 99)], (2, 1, 1, 0)),
        Walk({0: {**START, 1: (11, 0.95)}, 1: AFTER_2}, [(1, 11)], (1, 0, 0, 1)),  # where nothing was drafted
        Walk(  # another order than the draft's
            {0: {**START, 0: (10, 0.95)}, 2: {1: (11, 0.5), 2: (12, 0.4), 3: (13, 0.3)}},
            [(0, 10), (1, 11)],
            (2, 1, 0, 1),
        ),
        Walk({0: START}, [(2, 12), (3, 13)], (1, 2, 0, 0), steps=2),  # two at a time
        Walk({0: START, 5: AFTER_23}, [(2, 12), (3, 13), (0, 10), (1, 11)], (2, 3, 0, 1), steps=2),
        Walk({0: {**START, 3: (99, 0.3)}, 5: AFTER_23}, [(2, 12), (3, 99)], (1, 1, 1, 0), steps=2),
        Walk({0: {**START, 1: (11, 0.8)}}, [(2, 12), (1, 11)], (1, 1, 0, 1), steps=2),
        Walk({0: START}, [(2, 12), (3, 13), (0, 10), (1, 11)], (1, 3, 0, 1), steps=1),  # the block is full
        Walk({0: START, 5: AFTER_23}, [(2, 12), (3, 13), (0, 10)], (2, 3, 0, 0), steps=3),  # two, then one
        Walk({0: START, 1: AFTER_2}, [(2, 12), (0, 10)], (2, 2, 0, 0), steps=3, step=1),  # quotas 2, 1, 1: past the 2
    ],
)
def test_walk_by_hand(case: Walk) -> None:
    params = DecodeParams(method="exact", steps=case.steps)
    decision = walk(params, case.step, 4, drafted_of([2, 0, 3], [12, 10, 13]), *looked_at(case.views))
    assert decision.reveals == case.reveals
    assert (decision.steps, *(decision.kinds.count(kind) for kind in KINDS)) == case.counts
    assert decision.drafted == 3


def target_view(seed: int, filled: dict[int, int], size: int) -> tuple[View, dict[int, float]]:
    """A target as a function of the block's state and nothing else: tokens, confidences, entropies of open offsets."""
    rng = Random(f"{seed} {sorted(filled.items())}")
    still_open = [offset for offset in range(size) if offset not in filled]
    view = {offset: (offset if rng.random() < 0.8 else 100 + rng.randrange(3), rng.random()) for offset in still_open}
    return view, {offset: rng.random() / 2 for offset in still_open}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_walk_goes_where_the_target_alone_would_go(data: st.DataObject) -> None:
    """Any proposal, states and remasking: the same steps, up to the first state nobody looked at."""
    size, seed = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 10**6))
    remasking: Remasking = data.draw(st.sampled_from(["static", "dynamic", "sequential", "entropy"]))
    params = DecodeParams(method="exact", remasking=remasking, steps=data.draw(st.integers(1, size)), threshold=0.6)
    first = data.draw(st.integers(0, 2))
    offsets = data.draw(st.permutations(range(size)))[: data.draw(st.integers(1, size))]
    full = (1 << len(offsets)) - 1
    some = st.lists(st.integers(1, max(1, full - 1)), unique=True)
    listed = [0, *data.draw(some | st.just(list(range(1, full))))]
    listed = [state for state in listed if state != full]
    entropies: list[float] = []
    views = {}
    for state in listed:
        filled = {offset: offset for i, offset in enumerate(offsets) if state >> i & 1}
        views[state], entropy = target_view(seed, filled, size)
        entropies += [entropy[offset] for offset in sorted(entropy)]
    states, scores = looked_at(views)
    scores.entropy = entropies

    expected: list[tuple[int, int]] = []
    filled, step, on_a_listed_state = {}, 0, True
    while on_a_listed_state and len(filled) < size:
        view, entropy = target_view(seed, filled, size)
        alone = Slots(sorted(view), list(range(len(view))))
        ordered = [view[offset] for offset in sorted(view)]
        own = Scores([t for t, _ in ordered], [c for _, c in ordered], [], [entropy[o] for o in sorted(view)])
        reveals = [(o, t) for o, t, _ in denoise_step(params, first + step, size, alone, own)]
        expected, step, filled = expected + reveals, step + 1, filled | dict(reveals)
        state = sum(1 << i for i, offset in enumerate(offsets) if offset in filled)
        on_a_listed_state = state in listed and all(o in offsets and t == o for o, t in filled.items())

    decision = walk(params, first, size, drafted_of(offsets, list(offsets)), states, scores)
    assert decision.reveals == expected
    assert decision.steps == step
    accepted, recovered, bonus = (decision.kinds.count(kind) for kind in KINDS)
    assert accepted == sum(token == offset and offset in offsets for offset, token in expected)
    assert bonus == sum(offset not in offsets for offset, _ in expected)
    assert accepted + recovered + bonus == len(expected)


OPEN = [30, MASK_ID, MASK_ID, MASK_ID]
EMPTY = [MASK_ID] * 4


def work_of(method: Method, block: list[int], drafted: DraftedBlock | None, **changes: object) -> Work:
    """A sequence at position 8 of blocks of 4, sampled unless told otherwise."""
    settings = {"temperature": 1.0, "seed": 5} | changes
    params = DecodeParams(method=method, **settings).resolve(4)  # type: ignore[arg-type]
    proposal = None if drafted is None else Proposal([drafted])
    state = BlockState(8, tuple(block), MASK_ID)
    name = f"{method} {block} {drafted} {changes}"
    return Work(name, params, 40, 8, [], 4, state, 0, proposal=proposal)


def sampled(offsets: list[int], tokens: list[int]) -> DraftedBlock:
    drafted = drafted_of(offsets, tokens)
    drafted.q_ids = np.array([[token, 9] for token in tokens])
    drafted.q_probs = np.array([[0.8, 0.2]] * len(tokens), np.float32)
    return drafted


def wanted(works: list[Work]) -> list[Want]:
    """The logits rows that these ask for."""
    wants: list[Want] = []
    look_at([(work, Rows()) for work in works], {}, Limits(256), wants)
    return wants


def judged(works: list[Work], logits: Tensor) -> dict[str, Judged]:
    wants: list[Want] = []
    looks = look_at([(work, Rows()) for work in works], {}, Limits(256), wants)
    return judge(looks, wants, logits.clone(), info_of(mask_token_id=MASK_ID))


MIXED = [
    work_of("vanilla", OPEN, None),
    work_of("simsd", OPEN, sampled([3, 1], [7, 8])),
    work_of("simsd", OPEN, sampled([3, 1], [7, 8]), layout="branches"),
    work_of("exact", EMPTY, sampled([2, 0, 1, 3], [7, 8, 7, 8])),
    work_of("vanilla", EMPTY, None, remasking="entropy"),
    work_of("simsd", EMPTY, None),
    work_of("simsd", OPEN, drafted_of([3, 1], [7, 8]), temperature=0.0),
    work_of("exact", OPEN, None, drafter="self"),
    work_of("simsd", EMPTY, None, drafter="self", temperature=0.7),
    work_of("s2d2", OPEN, None),
    work_of("s2d2", OPEN, None, draft_top_k=1),
    work_of("exact", OPEN, None, drafter="self", draft_top_k=2),
    work_of("simsd", OPEN, None, drafter="self", draft_top_k=2),
    work_of("s2d2", OPEN, sampled([1, 2], [7, 8])),
]


def test_a_verdict_does_not_depend_on_batch_mates() -> None:
    """All methods in one batch, forwards and backwards, against each alone on its own rows of logits."""
    generator = torch.Generator().manual_seed(0)
    logits = {work.seq_id: torch.randn(len(wanted([work])), 100, generator=generator) * 2 for work in MIXED}
    together = judged(MIXED, torch.cat(list(logits.values())))
    backwards = judged(MIXED[::-1], torch.cat(list(logits.values())[::-1]))
    for work in MIXED:
        alone = judged([work], logits[work.seq_id])[work.seq_id]
        assert together[work.seq_id].blocks == backwards[work.seq_id].blocks == alone.blocks
        drafts = [each[work.seq_id].proposal for each in (together, backwards)] + [alone.proposal]
        assert len({str(draft) for draft in drafts}) == 1  # with confidence and q, to the last digit that is printed
        assert alone.blocks[0].reveals
        assert work.block is not None
        assert all(work.block.tokens[offset] == MASK_ID for offset, _ in alone.blocks[0].reveals)


@pytest.mark.parametrize("layout", ["paired", "branches"])
def test_which_row_judges_which_candidate(layout: str) -> None:
    """Logits that are certain of one token per row: candidate 7 at 3, then 8 at 1 are judged, then 2 is the bonus."""
    asked = work_of("simsd", OPEN, sampled([3, 1], [7, 8]), layout=layout)
    certain = {"paired": [8, 5, 7], "branches": [0, 0, 7, 8, 0, 5]}[layout]
    # paired: mask rows of 1, 2, 3; branches: 1, 2, 3 at the start, then 1, 2 after 3, then 2 after both
    logits = 50.0 * torch.nn.functional.one_hot(torch.tensor(certain), 12).float()
    [block] = judged([asked], logits)[asked.seq_id].blocks
    assert block.reveals == [(3, 7), (1, 8), (2, 5)]
    assert (block.kinds, block.steps) == (["accepted", "accepted", "bonus"], 3)
    revealed_before = {"paired": [2, 3, 1], "branches": [1, 1, 1, 2, 2, 3]}[layout]
    assert [count for _, _, count in wanted([asked])] == revealed_before
