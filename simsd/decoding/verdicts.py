"""From the logits of a verify forward to verdicts: the tensor work of all sequences at once, then each by its own rule.

The tensor work is written down on the host, sent in one copy, done, and read in one copy (`simsd.forward.transfer`).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.decoding.draft import OwnRows, own_draft
from simsd.decoding.rejection import accepted, residual
from simsd.decoding.sampling import (
    ACCEPT,
    RECOVER,
    SAMPLE,
    RowParams,
    adjust,
    adjustments,
    entropies,
    filtered_log_probs,
    gumbel_argmax,
    scores_of,
    select,
)
from simsd.forward.transfer import to_device, to_host
from simsd.messages.request import TokenLogprob
from simsd.messages.round import BlockVerdict, DraftedBlock, Proposal, Work
from simsd.messages.worker import WorkerInfo
from simsd.verification.accept import Decision, Scores, TokenTests
from simsd.verification.rows import Rows
from simsd.verification.schemes import Denoising, Forced, Limits, Verification, Want, speculation

DRAFTED = ("drafted", "q_ids", "minus_q")
"""Arrays of the tokens that rejection sampling tests: what was drafted, and from which distribution, negated."""


@dataclass(slots=True)
class Look:
    """One sequence's part in a verify forward: how its open block is looked at, and which logits rows are its own."""

    work: Work
    verification: Verification
    drafted: DraftedBlock | None
    span: range
    tested: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.tested = self.verification.tested()

    @property
    def warm(self) -> bool:
        return self.work.params.temperature > 0

    @property
    def rejects(self) -> bool:
        """Whether rejection sampling tests its drafted tokens."""
        return self.warm and self.drafted is not None and bool(self.tested)

    @property
    def draws_own(self) -> bool:
        """Whether the next draft is read from this forward, beyond its best tokens."""
        params = self.work.params
        return params.drafts_itself and (self.warm or params.method == "s2d2")


def look_at(
    asked: list[tuple[Work, Rows]], proposals: dict[str, Proposal], limits: Limits, wants: list[Want]
) -> list[Look]:
    """How each sequence's open block is looked at; its rows are added, and `wants` gets an entry for each logits row.

    asked: works whose open block comes with the forward, and their rows so far. A sequence that waits for its draft to
    catch up is not looked at, so that its answer does not depend on timing.
    """
    looks = []
    for work, rows in asked:
        assert work.block is not None
        proposal = proposals.get(work.seq_id, work.proposal)
        drafted = proposal.blocks[0] if proposal is not None and not work.forced else None
        verification: Verification
        if work.forced:
            verification = Forced(work.params, work.block, work.forced)
        elif drafted is not None:
            verification = speculation(work.params)(work.params, work.block, drafted, limits)
        elif not work.gamma:
            verification = Denoising(work.params, work.block)
        else:
            continue
        first = len(wants)
        verification.lay(rows, wants)
        looks.append(Look(work, verification, drafted, range(first, len(wants))))
    return looks


@dataclass(slots=True)
class Judged:
    """What became of one sequence's look; `proposal` is what the target drafts for itself."""

    block: BlockVerdict
    proposal: Proposal | None


def judge(looks: list[Look], wants: list[Want], logits: Tensor, info: WorkerInfo) -> dict[str, Judged]:
    """logits [M, V] of the wanted rows in order, which are changed -> what each sequence reveals, by its id."""
    assert logits.shape[0] == len(wants)
    if not wants:
        return {}
    batch = _Batch(looks, wants, logits.shape[1], info)
    sent = dict(zip(batch.arrays, to_device(list(batch.arrays.values()), logits.device), strict=True))
    adjust(logits, info.mask_token_id, sent)
    log_probs = filtered_log_probs(logits, sent)
    read = to_host(batch.read(logits, log_probs, sent))
    scores = scores_of(read, batch.sampled)
    tests, own, logprobs = batch.tests(read, scores), batch.own_rows(read), batch.logprobs(read)
    judged = {}
    for look in looks:
        work, params = look.work, look.work.params
        decision = look.verification.decide(scores, tests[work.seq_id])
        block = BlockVerdict(decision.reveals, decision.kinds, steps=decision.steps, drafted=decision.drafted)
        if look.drafted is None and params.method == "simsd" and not work.forced:
            block.fallback = len(decision.reveals)
        if work.report.logprobs is not None:
            block.logprobs = [
                logprobs.of(row, token, work.report.logprobs)
                for row, (_, token) in zip(decision.rows, decision.reveals, strict=True)
            ]
        if work.report.events and look.drafted is not None:
            block.proposed = list(look.drafted.entries())
        judged[work.seq_id] = Judged(block, _own_draft(look, decision, batch.params, scores, own))
    return judged


def _own_draft(look: Look, decision: Decision, params: RowParams, scores: Scores, own: OwnRows) -> Proposal | None:
    if decision.context is None or not look.work.params.drafts_itself:
        return None
    # What S2D2's draft step reveals is part of the span that it may verify instead.
    taken = {offset for offset, _ in decision.reveals} if look.work.params.method != "s2d2" else set()
    return own_draft(look.work.params, decision.context, taken, params, scores, own)


@dataclass(slots=True)
class _Logprobs:
    """Log-probabilities of the model's own distribution: of `tokens` [M, 3] that a row may reveal, and the likeliest.

    place: logits row -> its place in `own`, `top` and `ids`, [asked rows, ...] each.
    """

    place: dict[int, int]
    tokens: list[list[int]]
    own: list[list[float]]
    top: list[list[float]]
    ids: list[list[int]]

    def of(self, row: int, token: int, alternatives: int) -> TokenLogprob:
        i = self.place[row]
        logprob = self.own[i][self.tokens[i].index(token)]
        return TokenLogprob(logprob, list(zip(self.ids[i][:alternatives], self.top[i][:alternatives], strict=True)))


class _Batch:
    """What the rows of a batch are read for, written down before anything is on a device.

    sampled: rows whose token is drawn: those of sampled requests that no given token is looked at in. tested: rows in
    which rejection sampling tests a drafted token. own: rows that the target may draft from. asked: rows of requests
    that report log-probabilities.
    """

    def __init__(self, looks: list[Look], wants: list[Want], vocabulary: int, info: WorkerInfo) -> None:
        self.looks, self.vocabulary = looks, vocabulary
        self.params = RowParams.build(wants)
        warm_tests = [look for look in looks if look.rejects]
        tested = [row for look in warm_tests for row in look.tested]
        draws = self.params.warm
        draws[[row for look in looks for row in look.tested]] = False
        self.sampled = draws.nonzero()[0]
        self.tested = np.array(tested, np.int64)
        self.own = np.array([row for look in looks if look.draws_own for row in look.span], np.int64)
        self.asked = np.array([r for k in looks if k.work.report.logprobs is not None for r in k.span], np.int64)
        self.alternatives = max((look.work.report.logprobs or 0 for look in looks), default=0)
        self.arrays: dict[str, NDArray[Any]] = self.params.filters(vocabulary)
        self.arrays |= adjustments(((look.work, look.span) for look in looks), wants, info.eos_token_ids)
        if len(self.sampled) or tested:
            keys = self.params.keys(SAMPLE, self.sampled), self.params.keys(RECOVER, self.tested)
            self.arrays |= {"sampled": self.sampled, "keys": np.concatenate(keys)}
        if tested:
            self.arrays |= self._drafted(warm_tests)
        if len(self.own):
            self.arrays["own"] = self.own
        if len(self.asked):
            self.arrays |= {"asked": self.asked, "known": self._known(len(wants))}

    def _drafted(self, looks: list[Look]) -> dict[str, NDArray[Any]]:
        """The tokens that rejection sampling tests, and the distributions that they were drawn from, padded."""
        blocks = [look.drafted for look in looks if look.drafted is not None]
        width = max(block.q_ids.shape[1] for block in blocks)
        q_ids = np.zeros((len(self.tested), width), np.int64)
        minus_q = np.zeros((len(self.tested), width), np.float32)
        first = 0
        for block in blocks:
            count, k = block.q_ids.shape
            q_ids[first : first + count, :k], minus_q[first : first + count, :k] = block.q_ids, -block.q_probs
            first += count
        tokens = np.array([token for block in blocks for token in block.tokens], np.int64)
        return {"tested": self.tested, "drafted": tokens, "q_ids": q_ids, "minus_q": minus_q}

    def _known(self, rows: int) -> NDArray[np.int64]:
        """The drafted or forced token that each row may reveal; -1 where it can only be one of the target's."""
        known = np.full(rows, -1, np.int64)
        for look in self.looks:
            tokens = look.work.forced if look.drafted is None else look.drafted.tokens
            known[look.tested] = tokens[: len(look.tested)]
        return known

    def read(self, logits: Tensor, log_probs: Tensor, sent: dict[str, Tensor]) -> dict[str, Tensor]:
        """All that the rules need of the rows, still on the device."""
        found: dict[str, Tensor] = {}
        if len(self.tested) < len(log_probs) or len(self.asked):
            found["top"], found["best"] = log_probs.max(dim=-1)
        weights = []
        if len(self.sampled):
            weights.append(select(log_probs, self.sampled, sent["sampled"]))
        if len(self.tested):
            found["p_drafted"], rest = residual(
                select(log_probs, self.tested, sent["tested"]), *(sent[name] for name in DRAFTED)
            )
            weights.append(rest)
        if weights:
            together = torch.cat(weights) if len(weights) > 1 else weights[0]
            found["picks"] = gumbel_argmax(together, sent["keys"])
            found["picked"] = together.gather(1, found["picks"].unsqueeze(1)).squeeze(1)
        if any(look.work.params.remasking == "entropy" for look in self.looks):
            found["entropy"] = entropies(log_probs)
        if len(self.own):
            own, settings = (
                select(log_probs, self.own, sent["own"]),
                [look.work.params for look in self.looks if look.draws_own],
            )
            width = max(params.draft_top_k if params.temperature > 0 else 2 for params in settings)
            found["own_top"], found["own_ids"] = own.topk(min(max(2, width), self.vocabulary), dim=-1)
            if any(params.routing_score == "entropy" for params in settings):
                found["own_entropy"] = entropies(own)
        if len(self.asked):
            found |= self._read_logprobs(logits, found, sent)
        return found

    def _read_logprobs(self, logits: Tensor, found: dict[str, Tensor], sent: dict[str, Tensor]) -> dict[str, Tensor]:
        token = found["best"].clone()
        if len(self.sampled):
            token[sent["sampled"]] = found["picks"][: len(self.sampled)]
        known, recovered = torch.where(sent["known"] < 0, token, sent["known"]), token.clone()
        if len(self.tested):
            recovered[sent["tested"]] = found["picks"][len(self.sampled) :]
        tokens = torch.stack((token, known, recovered), dim=1)[sent["asked"]]
        log_probs = logits[sent["asked"]].log_softmax(dim=-1)
        top, ids = log_probs.topk(self.alternatives, dim=-1)
        return {"asked_tokens": tokens, "asked_own": log_probs.gather(1, tokens), "asked_top": top, "asked_ids": ids}

    def tests(self, read: dict[str, Tensor], scores: Scores) -> dict[str, TokenTests]:
        """Of each sequence's drafted tokens, by its id: at temperature 0 only the target's best token stands."""
        tests, first = {}, 0
        if len(self.tested):
            stands, instead = self._rejected(read)
        for look in self.looks:
            if look.rejects:
                last = first + len(look.tested)
                tests[look.work.seq_id] = TokenTests(stands[first:last], instead[first:last])
                first = last
            else:
                best = [scores.token[row] for row in look.tested]
                drafted = look.drafted.tokens if look.drafted is not None else []
                tests[look.work.seq_id] = TokenTests([a == b for a, b in zip(drafted, best, strict=False)], best)
        return tests

    def _rejected(self, read: dict[str, Tensor]) -> tuple[list[bool], list[int]]:
        """For the tokens of all tested rows: whether they stand, and what replaces them."""
        first = len(self.sampled)
        replacement, keys = read["picked"][first:].numpy(), self.params.keys(ACCEPT, self.tested)
        tokens, q_ids, minus_q = (self.arrays[name] for name in DRAFTED)
        stands = accepted(keys, tokens, q_ids, minus_q, read["p_drafted"].numpy(), replacement)
        return stands.tolist(), read["picks"][first:].tolist()

    def own_rows(self, read: dict[str, Tensor]) -> OwnRows:
        index = {row: place for place, row in enumerate(self.own.tolist())}
        nothing = torch.empty(0, 0)
        entropy = read["own_entropy"].tolist() if "own_entropy" in read else []
        return OwnRows(index, read.get("own_top", nothing), read.get("own_ids", nothing), entropy, self.vocabulary)

    def logprobs(self, read: dict[str, Tensor]) -> _Logprobs:
        place = {row: i for i, row in enumerate(self.asked.tolist())}
        names = ("asked_tokens", "asked_own", "asked_top", "asked_ids")
        return _Logprobs(place, *(read[name].tolist() if name in read else [] for name in names))
