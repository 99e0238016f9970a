"""Drafting: from the distributions at the open positions to proposed tokens, and q, what they were sampled from.

For `simsd` a draft picks positions by the highest probability of any token there, or from the left with sequential
remasking, and only then looks at the sampled tokens. Picking by the confidence of the sampled token would bias the
choice, and with it rejection sampling. For `exact` a draft tries to foresee the target's own step, so it uses the
target's noise and remasking (docs/algorithm.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.block.successor import tokens_to_draft
from simsd.decoding.noise import DRAFT, SAMPLE, gumbel_argmax, keys_of
from simsd.decoding.reading import Answer, Question, read, rows_of
from simsd.decoding.sampling import RowParams
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock, Proposal, Work
from simsd.messages.worker import WorkerInfo
from simsd.verification.accept import Scores, Slots
from simsd.verification.rows import Rows
from simsd.verification.schemes import Denoising, Want

S2D2_MARGIN = 0.05

Q = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The distribution that a drafted token was sampled from: token ids and their probabilities, [k] each."""


@dataclass(slots=True)
class Drafting:
    """A chain of blocks that is being drafted: those that are done, and what is proposed so far in the last one.

    block: the last block, with the proposed tokens revealed. gamma: how many tokens to propose in it in all.
    assumed: the tokens of whole blocks before it that are taken for granted; each draft step sees them.
    step: the draft steps that were taken in the block. done: the drafted blocks before it.
    offsets, tokens, confidence, q: the proposed tokens of the block, as in `DraftedBlock`.
    slots, span: the logits rows of the current draft step.
    """

    work: Work
    block: BlockState
    gamma: int
    assumed: list[int] = field(default_factory=list)
    step: int = 0
    done: list[DraftedBlock] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    q: list[Q] = field(default_factory=list)
    slots: Slots = field(default_factory=lambda: Slots([], []))
    span: range = range(0)

    @property
    def params(self) -> DecodeParams:
        return self.work.params

    def owed(self, step: int) -> int:
        """Return how many tokens draft step `step` (from 0) reveals: gamma // draft_steps, and the rest comes first."""
        steps = min(self.params.draft_steps, self.gamma)
        return self.gamma // steps + (step < self.gamma % steps) if step < steps else 0

    @property
    def goes_on(self) -> bool:
        """Whether the block takes another draft step."""
        return self.owed(self.step) > 0

    def lay(self, rows: Rows, wants: list[Want], held: int = 0) -> None:
        """Lay the rows of the next draft step. held: the draft has KV up to this position, or rows for it."""
        start = self.block.start - len(self.assumed)
        missing = self.assumed[max(0, held - start) :]
        rows.assume(missing, self.block.start - len(missing), self.block.size)
        look, first = Denoising(self.params, self.block), len(wants)
        look.lay(rows, wants)
        self.slots, self.span = look.slots, range(first, len(wants))

    def reveal(self, offset: int, token: int, confidence: float) -> None:
        self.offsets.append(offset)
        self.tokens.append(token)
        self.confidence.append(confidence)

    def lengthen(self, eos_token_ids: Sequence[int]) -> None:
        """Go on with the next block, unless the chain is long enough, or the answer may end where it is now.

        Nothing is drafted behind an EOS that was drafted, or behind `max_tokens`.
        """
        ends = self.block.visible_end(self.params, self.work.prompt_tokens, eos_token_ids)[1] is not None
        if ends or not self.block.full or len(self.done) + 1 >= self.params.chain_length:
            return
        self.done.append(self._drafted())
        self.assumed = [*self.assumed, *self.block.tokens]
        self.block, self.step = self.block.following(), 0
        self.gamma = tokens_to_draft(self.params, self.block)
        self.offsets, self.tokens, self.confidence, self.q = [], [], [], []

    def proposal(self) -> Proposal:
        return Proposal([*self.done, self._drafted()])

    def _drafted(self) -> DraftedBlock:
        drafted = DraftedBlock.greedy(self.offsets, self.tokens, self.confidence)
        if self.q:
            drafted.q_ids, drafted.q_probs = np.stack([ids for ids, _ in self.q]), np.stack([p for _, p in self.q])
        return drafted


def draft_step(drafts: list[Drafting], wants: list[Want], logits: Tensor, info: WorkerInfo) -> None:
    """Reveal the tokens of the next draft step in every block, and let chains go on whose last block is drafted.

    logits: [M, V], one row for each of `wants`.
    """
    if not wants:
        return
    proposing = [p.temperature > 0 and not p.foresees_target for p, _, _ in wants]
    drawing = [row for row, (p, _, _) in enumerate(wants) if p.temperature > 0 and not proposing[row]]
    question = Question(
        owners=[(draft.work, draft.span) for draft in drafts],
        sampled=rows_of(drawing),
        likeliest=rows_of([row for row, on in enumerate(proposing) if on]),
        width=max((p.draft_top_k for (p, _, _), on in zip(wants, proposing, strict=True) if on), default=0),
    )
    answer = read(logits, wants, question, info)
    scores, q = answer.scores, draw(answer)
    for draft in drafts:
        entries = []
        for i in pick(draft, draft.slots, scores, draft.step):
            offset, row = draft.slots.offsets[i], draft.slots.rows[i]
            draft.reveal(offset, scores.token[row], scores.confidence[row])
            entries.append((offset, scores.token[row]))
            draft.q += [q[row]] if row in q else []
        draft.block, draft.step = draft.block.reveal(entries, 0), draft.step + 1
        if not draft.goes_on:
            draft.lengthen(info.eos_token_ids)


def draw(answer: Answer) -> dict[int, Q]:
    """Sample a token from q for each row whose likeliest tokens were asked for, and return the q of each row.

    The sampled tokens and their probabilities replace those in the answer's scores.
    """
    rows_of_width: dict[int, list[int]] = {}
    for row in answer.place:
        rows_of_width.setdefault(answer.params.wants[row][0].draft_top_k, []).append(row)
    found = {}
    for width, rows in rows_of_width.items():
        top, ids = _likeliest(answer, rows, width)
        tokens, q = propose_tokens(top, ids, torch.from_numpy(keys_of(answer.params, DRAFT, np.array(rows))))
        chances = q.gather(1, (ids == tokens.unsqueeze(1)).int().argmax(dim=1, keepdim=True)).squeeze(1)
        for row, token, chance, *each in zip(
            rows, tokens.tolist(), chances.tolist(), ids.numpy(), q.numpy(), strict=True
        ):
            answer.scores.token[row], answer.scores.confidence[row] = token, chance
            found[row] = (each[0], each[1])
    return found


def _likeliest(answer: Answer, rows: list[int], width: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and ids of the likeliest tokens of `rows`, [rows, width] each.

    The answer may hold more of them, for other requests of the batch.
    """
    places = [answer.place[row] for row in rows]
    return answer.top[places, :width], answer.ids[places, :width]


def propose_tokens(top: Tensor, ids: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sample from q, the filtered distribution cut to its k likeliest tokens and renormalised.

    top, ids: [M, k], the log-probabilities of the k likeliest tokens, best first, and their ids. keys: [M].
    Returns the tokens, [M] int64, and the probabilities of q, [M, k] float32.
    """
    q = top.log_softmax(dim=-1)
    column = gumbel_argmax(q, keys, ids)
    return ids.gather(1, column.unsqueeze(1)).squeeze(1), q.exp()


def pick(draft: Drafting, slots: Slots, scores: Scores, step: int) -> list[int]:
    """Return indices of the open offsets to reveal in this draft step, surest first, or from the left if sequential."""
    owed = draft.owed(step)
    if draft.params.remasking == "sequential":
        return list(range(min(owed, len(slots.offsets))))
    rank = slots.of(scores.confidence if draft.params.foresees_target else scores.top)
    return sorted(range(len(rank)), key=lambda i: (-rank[i], i))[:owed]


def own_draft(params: DecodeParams, slots: Slots, taken: set[int], answer: Answer) -> Proposal | None:
    """Return what the target's forward predicts at the positions that are left open, as a draft for its next forward.

    slots: the logits rows of the state in which the forward ended. taken: offsets that were revealed since. The tokens
    come surest first, or from the left with sequential remasking. s2d2 takes the first contiguous run of open
    positions. The result is None if no position is open.
    """
    scores = answer.scores
    left = [(offset, row) for offset, row in zip(slots.offsets, slots.rows, strict=True) if offset not in taken]
    if params.routes:
        left = [(offset, row) for i, (offset, row) in enumerate(left) if offset == left[0][0] + i]
    elif params.remasking != "sequential":
        sure = scores.confidence if params.foresees_target else scores.top
        left.sort(key=lambda entry: (-sure[entry[1]], entry[0]))
    left = left[: params.gamma]
    if not left:
        return None
    chosen = [row for _, row in left]
    tokens, confidence = [scores.token[row] for row in chosen], [scores.confidence[row] for row in chosen]
    drafted = DraftedBlock.greedy([offset for offset, _ in left], tokens, confidence)
    if params.temperature > 0:
        _draw_own(params, drafted, chosen, len(taken), answer)
    if params.routes:
        drafted.confidence = _agreement(params, chosen, answer)
    return Proposal([drafted])


def _draw_own(params: DecodeParams, drafted: DraftedBlock, chosen: list[int], taken: int, answer: Answer) -> None:
    """Sample the tokens of the `chosen` rows. `exact` uses the noise of the state in which it expects each token."""
    top, ids = _likeliest(answer, chosen, params.draft_top_k)
    if params.foresees_target:
        wants = [answer.params.wants[row] for row in chosen]
        expected = RowParams([(p, position, revealed + taken + i) for i, (p, position, revealed) in enumerate(wants)])
        column = gumbel_argmax(top, torch.from_numpy(keys_of(expected, SAMPLE, np.arange(len(chosen)))), ids)
        drafted.tokens = ids.gather(1, column.unsqueeze(1)).squeeze(1).tolist()
        return
    tokens, q = propose_tokens(top, ids, torch.from_numpy(keys_of(answer.params, DRAFT, np.array(chosen))))
    drafted.tokens, drafted.q_ids, drafted.q_probs = tokens.tolist(), ids.numpy(), q.numpy()


def _agreement(params: DecodeParams, chosen: list[int], answer: Answer) -> list[float]:
    """Return S2D2's guess of the chance that each token is accepted, by the margin or by the entropy.

    By the margin it is 1 if the two best probabilities differ by more than `S2D2_MARGIN`, else 0.
    """
    if params.routing_score == "entropy":
        nats = [answer.entropy[answer.place[row]] for row in chosen]
        return [math.exp(-each / math.log(answer.vocabulary)) for each in nats]
    best = answer.best_two[[answer.place[row] for row in chosen]].exp()
    return (best[:, 0] - best[:, 1] > S2D2_MARGIN).float().tolist()
