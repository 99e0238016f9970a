"""One draft step: from the draft's distributions at the open positions to revealed tokens and their q.

`simsd` picks positions from the distribution (highest probability first), or from the left with sequential remasking,
and only then looks at sampled tokens; choosing by the sampled token's confidence would bias it, and rejection sampling
with it. `exact` wants to foresee the
target's own step instead: the target's noise, the request's remasking confidence.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.decoding.accept import Slots
from simsd.decoding.sampling import (
    DRAFT,
    SAMPLE,
    RowParams,
    Scores,
    entropies,
    filtered_log_probs,
    gumbel_argmax,
    sample,
    score,
)
from simsd.decoding.tasks import Task
from simsd.messages.request import DecodeParams
from simsd.messages.round import Proposal, Proposals, Work

S2D2_MARGIN = 0.05


@dataclass(slots=True)
class DraftState:
    """A block being drafted: its tokens so far, and what has been proposed, in step order."""

    params: DecodeParams
    block: list[int]
    gamma: int
    offsets: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    q_ids: list[NDArray[np.int64]] = field(default_factory=list)
    q_probs: list[NDArray[np.float32]] = field(default_factory=list)

    def owed(self, step: int) -> int:
        """Tokens that draft step `step` (0-based) reveals: gamma spread over draft_steps, the first get the rest."""
        steps = min(self.params.draft_steps, self.gamma)
        return self.gamma // steps + (step < self.gamma % steps) if step < steps else 0

    def reveal(self, offset: int, token: int, confidence: float) -> None:
        self.offsets.append(offset)
        self.tokens.append(token)
        self.confidence.append(confidence)
        self.block[offset] = token

    def proposal(self) -> Proposal:
        empty = not self.q_ids
        return Proposal(
            self.offsets,
            self.tokens,
            self.confidence,
            np.zeros((len(self.offsets), 0), np.int64) if empty else np.stack(self.q_ids),
            np.zeros((len(self.offsets), 0), np.float32) if empty else np.stack(self.q_probs),
        )


@dataclass(slots=True)
class DraftCost:
    """Forwards, rows in them and seconds of some drafting; `took_part` counts the forwards of each sequence."""

    took_part: Counter[str] = field(default_factory=Counter)
    forwards: int = 0
    rows: int = 0
    elapsed_s: float = 0.0

    def __iadd__(self, other: "DraftCost") -> "DraftCost":
        self.took_part += other.took_part
        self.forwards, self.rows = self.forwards + other.forwards, self.rows + other.rows
        self.elapsed_s += other.elapsed_s
        return self


@dataclass(slots=True)
class Foreseen:
    """What was drafted for `work`, whose open block follows the tokens of `assumed`, which were not decided yet."""

    work: Work
    assumed: list[int]
    proposal: Proposal

    def serves(self, work: Work) -> bool:
        """Whether `work` asks for just this: the assumed block came to stand, and nothing is revealed after it."""
        then = self.work
        return (
            (work.block, work.step, work.gamma, work.params) == (then.block, then.step, then.gamma, then.params)
            and work.start + len(work.commit) == then.start + len(then.commit) + len(self.assumed)
            and work.commit[-len(self.assumed) :] == self.assumed
        )


@dataclass(slots=True)
class Ahead:
    """What one call of `propose_ahead` brought: by sequence, with the tokens that each has KV for, and the cost."""

    items: dict[str, Foreseen]
    cached: dict[str, int]
    cost: DraftCost

    def proposals(self, batch: list[Work]) -> Proposals | None:
        """As if they had been asked for now; None unless all of `batch` are served."""
        if not all(work.seq_id in self.items and self.items[work.seq_id].serves(work) for work in batch):
            return None
        return Proposals(
            items={work.seq_id: self.items[work.seq_id].proposal for work in batch},
            cached=self.cached,
            took_part=dict(self.cost.took_part),
            forwards=self.cost.forwards,
            rows=self.cost.rows,
            elapsed_s=self.cost.elapsed_s,
            ahead_s=self.cost.elapsed_s,
        )


def draft_step(tasks: list[Task], states: dict[str, DraftState], logits: Tensor, step: int) -> None:
    """Reveal what draft step `step` owes in every state. logits [M, V], the tasks' wanted rows in order."""
    wanted = [want for task in tasks for want in task.wanted]
    assert logits.shape[0] == len(wanted)
    if not wanted:
        return
    params = RowParams.build(wanted, logits.device)
    log_probs = filtered_log_probs(logits, params)
    scores = score(log_probs, params, SAMPLE)
    proposing = torch.tensor([p.method == "simsd" and p.temperature > 0 for p, _, _ in wanted])
    rows = proposing.nonzero().squeeze(1).to(logits.device)
    q: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
    if rows.numel():
        cut = torch.tensor([p.draft_top_k for p, _, _ in wanted], device=logits.device)[rows]
        tokens, ids, probs = propose_tokens(log_probs[rows], params.select(rows), cut)
        for row, token, row_ids, row_probs in zip(
            rows.tolist(), tokens.tolist(), ids.cpu().numpy(), probs.cpu().numpy(), strict=True
        ):
            scores.token[row], scores.confidence[row] = token, float(row_probs[row_ids == token][0])
            q[row] = (row_ids, row_probs)
    first = 0
    for task in tasks:
        task.shift(first)
        first += len(task.wanted)
        for slots in task.states.values():
            state = states[task.work.seq_id]
            for i in pick(state, slots, scores, step):
                state.reveal(slots.offsets[i], scores.token[slots.rows[i]], scores.confidence[slots.rows[i]])
                if slots.rows[i] in q:
                    state.q_ids.append(q[slots.rows[i]][0])
                    state.q_probs.append(q[slots.rows[i]][1])


def propose_tokens(log_probs: Tensor, params: RowParams, draft_top_k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sample from q, the filtered distribution cut to its `draft_top_k` [M] likeliest tokens and renormalised.

    log_probs [M, V] -> tokens [M] int64, q's ids [M, k] int64 and probabilities [M, k] float32.
    """
    k = min(int(draft_top_k.max()), log_probs.shape[1])
    top, ids = log_probs.topk(k, dim=-1)
    beyond = torch.arange(k, device=top.device) >= draft_top_k.unsqueeze(1)
    top = top.masked_fill(beyond, float("-inf")).log_softmax(dim=-1)
    column = gumbel_argmax(top, params.keys(DRAFT), ids)
    return ids.gather(1, column.unsqueeze(1)).squeeze(1), ids, top.exp()


def pick(state: DraftState, slots: Slots, scores: Scores, step: int) -> list[int]:
    """Indices into the open offsets to reveal in this draft step, surest first; sequential: from the left."""
    owed = state.owed(step)
    if state.params.remasking == "sequential":
        return list(range(min(owed, len(slots.offsets))))
    rank = slots.of(scores.confidence if state.params.method == "exact" else scores.top)
    return sorted(range(len(rank)), key=lambda i: (-rank[i], i))[:owed]


def own_draft(
    params: DecodeParams, slots: Slots, taken: set[int], log_probs: Tensor, rows: RowParams, scores: Scores
) -> Proposal | None:
    """What the target's own forward says of the positions that it has left open, as a draft for its next one.

    slots: the rows of the state it ended in; taken: offsets revealed since; log_probs [M, V] with `rows` and `scores`.
    Surest first, or with sequential remasking from the left; in s2d2 the first contiguous run. None if nothing is open.
    """
    left = [(offset, row) for offset, row in zip(slots.offsets, slots.rows, strict=True) if offset not in taken]
    if params.method == "s2d2":
        left = [(offset, row) for i, (offset, row) in enumerate(left) if offset == left[0][0] + i]
    elif params.remasking != "sequential":
        sure = scores.confidence if params.method == "exact" else scores.top
        left.sort(key=lambda entry: (-sure[entry[1]], entry[0]))
    left = left[: params.gamma]
    if not left:
        return None
    offsets, chosen = [offset for offset, _ in left], [row for _, row in left]
    tokens, confidence = [scores.token[row] for row in chosen], [scores.confidence[row] for row in chosen]
    proposal = Proposal(
        offsets, tokens, confidence, np.zeros((len(left), 0), np.int64), np.zeros((len(left), 0), np.float32)
    )
    index = torch.tensor(chosen, device=log_probs.device)
    if params.temperature > 0 and params.method == "exact":  # with the noise of the state that each is expected in
        expected = rows.select(index)
        expected.revealed = expected.revealed + len(taken) + torch.arange(len(chosen), device=index.device)
        proposal.tokens = sample(log_probs[index], expected, SAMPLE).tolist()
    elif params.temperature > 0:
        cut = torch.full_like(index, params.draft_top_k)
        drawn, ids, probs = propose_tokens(log_probs[index], rows.select(index), cut)
        proposal.tokens, proposal.q_ids, proposal.q_probs = drawn.tolist(), ids.cpu().numpy(), probs.cpu().numpy()
    if params.method == "s2d2":
        proposal.confidence = _agreement(params, log_probs[index])
    return proposal


def _agreement(params: DecodeParams, log_probs: Tensor) -> list[float]:
    """S2D2's guess of how likely each token will be accepted: 1 where the two best lie apart, or by the entropy."""
    if params.routing_score == "entropy":
        return [math.exp(-nats / math.log(log_probs.shape[-1])) for nats in entropies(log_probs)]
    best = log_probs.topk(2, dim=-1).values.exp()
    return (best[:, 0] - best[:, 1] > S2D2_MARGIN).float().tolist()
