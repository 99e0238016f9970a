"""The accept rules: rejection sampling in step order (`simsd`), the target's own walk (`exact`), plain denoising.

Everything here is plain Python over the numbers of `Scores`, but for `rejection`, which compares
distributions. *accepted*: a drafted token that stands. *recovered*: the target's token at the first rejection.
*bonus*: one more token of the target after full acceptance. *fallback*: revealed by plain denoising.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simsd.block.remasking import choose
from simsd.decoding.sampling import ACCEPT, RECOVER, RowParams, Scores, gumbel_argmax, uniform
from simsd.messages.request import DecodeParams, RevealKind
from simsd.messages.round import Proposal, Verdict


@dataclass(slots=True)
class Slots:
    """The logits rows of one block state: its open offsets, ascending, and the row of each."""

    offsets: list[int]
    rows: list[int]

    def of(self, values: list[float]) -> list[float]:
        return [values[row] for row in self.rows]


def rejection(
    log_p: Tensor, params: RowParams, tokens: Tensor, q_ids: Tensor, q_probs: Tensor
) -> tuple[Tensor, Tensor]:
    """Speculative sampling's test at each drafted slot, and the token that replaces a rejected one.

    log_p [M, V] filtered; tokens [M] drafted; q_ids, q_probs [M, k]. -> (accepted [M] bool, recovered [M] int64).
    Accept with probability min(1, p(x) / q(x)); recover from norm(max(0, p - q)) (paper, section 3). Rows at
    temperature 0 accept the best token and recover to it.
    """
    assert log_p.ndim == 2 and q_ids.shape == q_probs.shape
    best = log_p.argmax(dim=-1)
    accepted, recovered = tokens == best, best.clone()
    warm = params.warm_rows()
    if warm.numel():
        params, tokens, q_ids, q_probs = params.select(warm), tokens[warm], q_ids[warm], q_probs[warm].to(log_p.dtype)
        p = log_p[warm].exp()
        column = tokens.unsqueeze(1)
        p_x = p.gather(1, column).squeeze(1)
        q_x = torch.where(q_ids == column, q_probs, 0.0).sum(dim=1)
        # One number per (seed, position, revealed): the token argument of the hash is fixed.
        u = uniform(params.keys(ACCEPT), torch.zeros(1, dtype=torch.int64, device=log_p.device)).squeeze(1)
        accepted[warm] = u * q_x < p_x
        rest = (p.scatter_add(1, q_ids, -q_probs)).clamp_(min=0)
        # p = q to the last bit leaves nothing to recover from, and never rejects; keep the sampler's input proper
        # anyway.
        rest = torch.where(rest.sum(dim=1, keepdim=True) > 0, rest, p)
        recovered[warm] = gumbel_argmax(rest.log(), params.keys(RECOVER))
    return accepted, recovered


def judge_draft(
    verdict: Verdict, proposal: Proposal, rows: list[int], accepted: list[bool], recovered: list[int]
) -> bool:
    """Keep the longest accepted prefix in step order; the target's token at the first rejection. True if all stood.

    rows: the logits row that tested each drafted token.
    """
    verdict.drafted += len(proposal.offsets)
    for i, (offset, token) in enumerate(zip(proposal.offsets, proposal.tokens, strict=True)):
        verdict.steps += 1
        if not accepted[i]:
            verdict.reveal(offset, recovered[i], "recovered", rows[i])
            return False
        verdict.reveal(offset, token, "accepted", rows[i])
    return True


def add_bonus(verdict: Verdict, params: DecodeParams, slots: Slots, scores: Scores) -> None:
    """One more token, at the target's surest undrafted position; picked from the distribution, not from the sample.

    With sequential remasking at the leftmost one.
    """
    if not slots.offsets:
        return
    top = slots.of(scores.top)
    best = 0 if params.remasking == "sequential" else max(range(len(top)), key=lambda i: (top[i], -i))
    verdict.reveal(slots.offsets[best], scores.token[slots.rows[best]], "bonus", slots.rows[best])
    verdict.steps += 1


def denoise_step(
    params: DecodeParams, step: int, block_size: int, slots: Slots, scores: Scores
) -> list[tuple[int, int, int]]:
    """The target's own next step: (offset, token, logits row) of what it reveals, surest first."""
    entropy = slots.of(scores.entropy) if params.remasking == "entropy" else []
    chosen = choose(params, step, block_size, slots.offsets, slots.of(scores.confidence), entropy)
    return [(slots.offsets[i], scores.token[slots.rows[i]], slots.rows[i]) for i in chosen]


def walk(
    verdict: Verdict,
    params: DecodeParams,
    step: int,
    block_size: int,
    proposal: Proposal,
    states: dict[int, Slots],
    scores: Scores,
) -> Slots:
    """Follow the target's own transitions from state 0 for as long as they lead to a state that was looked at.

    `states`: bitmask over the proposal's entries -> the logits rows of that block state. -> the last state's.
    """
    entry = {offset: i for i, offset in enumerate(proposal.offsets)}
    verdict.drafted += len(proposal.offsets)
    state = 0
    while True:
        slots = states[state]
        reveals = denoise_step(params, step + verdict.steps, block_size, slots, scores)
        verdict.steps += 1
        foreseen = True
        for offset, token, row in reveals:
            kind: RevealKind = "bonus"
            if offset in entry:
                state |= 1 << entry[offset]
                kind = "accepted" if proposal.tokens[entry[offset]] == token else "recovered"
            verdict.reveal(offset, token, kind, row)
            foreseen &= kind == "accepted"
        if not foreseen or state not in states:
            return slots
