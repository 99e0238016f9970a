"""Proposals: how many a step, at which positions, from which distribution, and none of it up to batch mates."""

import numpy as np
import pytest
import torch

from simsd.decoding.draft import Drafting, draft_step, pick
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock, Work
from simsd.verification.accept import Scores, Slots
from simsd.verification.rows import Rows
from simsd.verification.schemes import Want
from tests.unit.numbers import drafted, info_of

MASK_ID = 3


def drafting(params: DecodeParams, block: list[int], gamma: int, name: str = "s") -> Drafting:
    state = BlockState(8, tuple(block), MASK_ID)
    return Drafting(Work(name, params, 40, 8, [], 8, state, gamma, 4), state, gamma)


@pytest.mark.parametrize(
    ("gamma", "draft_steps", "per_step"),
    [
        (4, 4, [1, 1, 1, 1]),
        (4, 2, [2, 2]),
        (4, 3, [2, 1, 1]),
        (4, 1, [4]),
        (5, 2, [3, 2]),
        (8, 3, [3, 3, 2]),
        (2, 4, [1, 1]),  # the block has fewer open positions than gamma
        (1, 1, [1]),
    ],
)
def test_gamma_is_split_over_draft_steps(gamma: int, draft_steps: int, per_step: list[int]) -> None:
    state = drafting(DecodeParams(draft_steps=draft_steps), [MASK_ID] * 8, gamma)
    assert [state.owed(step) for step in range(len(per_step) + 3)] == [*per_step, 0, 0, 0]


SLOTS = Slots([1, 4, 6], [2, 3, 4])
SCORES = Scores([0] * 5, [0, 0, 0.9, 0.2, 0.5], [0, 0, 0.9, 0.91, 0.95], [0.0] * 5)
"""Confidence of the samples says 1, 6, 4; the distributions' highest probabilities say 6, 4, 1."""


@pytest.mark.parametrize(
    ("params", "picked"),
    [
        (DecodeParams(method="simsd", draft_steps=1), [2, 1, 0]),
        (DecodeParams(method="simsd", draft_steps=2), [2, 1]),
        (DecodeParams(method="simsd", draft_steps=3), [2]),
        (DecodeParams(method="simsd", draft_steps=2, remasking="sequential"), [0, 1]),
        (DecodeParams(method="exact", draft_steps=1), [0, 2, 1]),
        (DecodeParams(method="exact", draft_steps=3), [0]),
        (DecodeParams(method="exact", draft_steps=2, remasking="sequential"), [0, 1]),
    ],
)
def test_positions_come_from_the_distribution_except_to_foresee_the_target(
    params: DecodeParams, picked: list[int]
) -> None:
    """Picking by the sampled token's confidence would bias `simsd`; `exact` imitates what the target will do."""
    assert pick(drafting(params, [MASK_ID] * 8, 3), SLOTS, SCORES, 0) == picked


def test_equally_sure_positions_go_left_to_right() -> None:
    scores = Scores([0] * 3, [0.5] * 3, [0.7] * 3, [0.0] * 3)
    state = drafting(DecodeParams(draft_steps=1), [MASK_ID] * 3, 3)
    assert pick(state, Slots([0, 1, 2], [0, 1, 2]), scores, 0) == [0, 1, 2]


def wants_of(cuts: list[int]) -> list[Want]:
    return [(DecodeParams(temperature=1.0, seed=seed, draft_top_k=cut), 5, 1) for seed, cut in enumerate(cuts)]


def test_q_is_the_renormalised_top_k_of_each_row() -> None:
    """p = .4 .3 .2 .1 with k = 1, 2, 3 and more than there are."""
    probs = torch.tensor([[0.2, 0.4, 0.1, 0.3]]).expand(4, -1)
    tokens, q = drafted(probs.log(), wants_of([1, 2, 3, 64]))
    by_hand = [[1], [4 / 7, 3 / 7], [4 / 9, 3 / 9, 2 / 9], [0.4, 0.3, 0.2, 0.1]]
    for (ids, found), expected in zip(q, by_hand, strict=True):
        assert ids[:4].tolist() == [1, 3, 0, 2][: len(expected)]
        assert found[:4].tolist() == pytest.approx(expected, abs=1e-6)
    assert tokens[0] == 1


def test_draft_top_k_of_a_row_is_its_own() -> None:
    """Beside rows with a larger k: the same token, the same q to the last bit."""
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(60, 30, generator=generator).log_softmax(dim=1)
    cuts = [1, 3, 10, 29] * 15
    wants = wants_of(cuts)
    tokens, q = drafted(log_probs, wants)
    for i, cut in enumerate(cuts):
        own_tokens, [own] = drafted(log_probs[i : i + 1], wants[i : i + 1])
        assert own_tokens.item() == tokens[i]
        assert len(own[0]) == cut
        for mine, others in zip(own, q[i], strict=True):
            assert (mine == others).all()
        assert tokens[i] in own[0]


VOCAB = 16
SETTINGS = {
    "sampled": DecodeParams(method="simsd", temperature=1.0, draft_steps=2, draft_top_k=2, seed=1),
    "wide": DecodeParams(method="simsd", temperature=0.7, draft_steps=1, draft_top_k=64, seed=2),
    "greedy": DecodeParams(method="simsd", temperature=0.0, draft_steps=2),
    "exact": DecodeParams(method="exact", temperature=1.0, draft_steps=2, seed=3),
}
BLOCKS = {"sampled": [MASK_ID] * 8, "wide": [9, MASK_ID, 8, MASK_ID, *[7] * 4], "greedy": [MASK_ID] * 8}
BLOCKS["exact"] = [7, *[MASK_ID] * 7]


def step_of(names: list[str], logits: dict[str, torch.Tensor]) -> dict[str, Drafting]:
    """One draft step of these sequences together."""
    gamma = {name: min(4, BLOCKS[name].count(MASK_ID)) for name in names}
    states = {name: drafting(SETTINGS[name], BLOCKS[name], gamma[name], name) for name in names}
    wants: list[Want] = []
    for state in states.values():
        state.lay(Rows(), wants)
    info = info_of(mask_token_id=MASK_ID)
    draft_step(list(states.values()), wants, torch.cat([logits[name] for name in names]), info)
    return states


def proposed(state: Drafting) -> DraftedBlock:
    [block] = state.proposal().blocks
    return block


@pytest.fixture
def logits() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {name: 2 * torch.randn(BLOCKS[name].count(MASK_ID), VOCAB, generator=generator) for name in SETTINGS}


def same_proposal(a: DraftedBlock, b: DraftedBlock) -> None:
    """Equal, but for columns of q that only pad."""
    assert (a.offsets, a.tokens) == (b.offsets, b.tokens)
    assert a.confidence == pytest.approx(b.confidence)
    for token, ids, q, other_ids, other_q in zip(a.tokens, a.q_ids, a.q_probs, b.q_ids, b.q_probs, strict=True):
        first = {i: p for i, p in zip(ids.tolist(), q.tolist(), strict=True) if p}
        assert first == pytest.approx({i: p for i, p in zip(other_ids.tolist(), other_q.tolist(), strict=True) if p})
        assert not first or token in first


def test_a_draft_does_not_depend_on_batch_mates(logits: dict[str, torch.Tensor]) -> None:
    names = list(SETTINGS)
    together, backwards = step_of(names, logits), step_of(names[::-1], logits)
    for name in names:
        alone = proposed(step_of([name], logits)[name])
        assert len(alone.offsets) == 2
        same_proposal(alone, proposed(together[name]))
        same_proposal(alone, proposed(backwards[name]))


def test_a_draft_step_reveals_in_the_block_and_reports_its_q(logits: dict[str, torch.Tensor]) -> None:
    states = step_of(list(SETTINGS), logits)
    for name, state in states.items():
        proposal = proposed(state)
        filled = dict(proposal.entries())
        assert state.block.tokens == tuple(filled.get(offset, token) for offset, token in enumerate(BLOCKS[name]))
        assert all(BLOCKS[name][offset] == MASK_ID for offset in proposal.offsets)
        sampled = SETTINGS[name].method == "simsd" and SETTINGS[name].temperature > 0
        assert proposal.q_ids.shape == proposal.q_probs.shape
        assert proposal.q_ids.shape[0] == 2
        assert (proposal.q_ids.shape[1] > 0) == sampled
        if sampled:
            assert np.allclose(proposal.q_probs.sum(axis=1), 1)


def test_greedy_draft_takes_the_best_token_at_the_surest_position(logits: dict[str, torch.Tensor]) -> None:
    proposal = proposed(step_of(["greedy"], logits)["greedy"])
    logits["greedy"][:, MASK_ID] = -torch.inf
    probs = logits["greedy"].softmax(dim=1)
    surest = probs.amax(dim=1).argsort(descending=True)[:2]
    assert proposal.offsets == surest.tolist()
    assert proposal.tokens == probs.argmax(dim=1)[surest].tolist()
    assert proposal.confidence == pytest.approx(probs.amax(dim=1)[surest].tolist())
