"""One request's state: the tokens that stand, the open block, what is visible, when it is finished. No tensors."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Literal

from simsd.block.remasking import quota
from simsd.block.successor import only_loop_knows, tokens_to_draft
from simsd.loop.adaptive import Adaptive, Costs
from simsd.loop.routing import Router
from simsd.messages.request import (
    DecodeParams,
    FinishReason,
    Output,
    Request,
    RevealKind,
    RoundEvent,
    Stats,
    TokenLogprob,
)
from simsd.messages.round import Proposal, Verdict, Work
from simsd.messages.worker import WorkerInfo
from simsd.tokens.text import TextStream

Role = Literal["draft", "target"]


@dataclass(slots=True)
class Sequence:
    """`tokens` are the whole blocks before the open one (prompt and answer); `block` is the open one.

    `step` denoising steps were taken in the block, `fresh` says that none of its tokens were decoded yet. `cached`: how
    many of `tokens` each worker holds KV for, as far as the loop knows. `logprobs` are those of revealed tokens that
    were not shown yet, by their index in the answer. `own_draft` is what the target drafted for itself, `held` what its
    step would have revealed (reveals, kinds, logprobs), while s2d2 verifies the draft instead.
    """

    request: Request
    info: WorkerInfo
    text: TextStream
    tokens: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    step: int = 0
    fresh: bool = True
    cached: dict[Role, int] = field(default_factory=lambda: {"draft": 0, "target": 0})
    shown: int = 0
    own_draft: Proposal | None = None
    held: tuple[list[tuple[int, int]], list[RevealKind], list[TokenLogprob]] = ([], [], [])
    finish_reason: FinishReason | None = None
    cancelled: bool = False
    stats: Stats = field(default_factory=Stats)
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    outputs: "asyncio.Queue[Output | Exception]" = field(default_factory=asyncio.Queue)
    queued_at: float = field(default_factory=time.perf_counter)
    admitted_at: float = 0.0
    decoding_at: float | None = None
    router: Router = field(init=False)
    adaptive: Adaptive | None = field(init=False)

    def __post_init__(self) -> None:
        prompt, size = self.request.prompt_ids, self.info.block_size
        known = [] if self.request.report.prompt else prompt
        whole = len(known) // size * size
        self.tokens = known[:whole]
        self.block = known[whole:] + [self.info.mask_token_id] * (size - len(known) + whole)
        self.stats.prompt_tokens = len(prompt)
        params = self.request.params
        self.router = Router(params)
        self.adaptive = Adaptive(params, size) if params.adaptive and params.needs_draft else None

    @property
    def seq_id(self) -> str:
        return self.request.request_id

    @property
    def total_tokens(self) -> int:
        """Prompt and answer at its longest, rounded up to blocks: what both workers reserve."""
        size = self.info.block_size
        return -(-(len(self.request.prompt_ids) + self.request.params.max_tokens) // size) * size

    @property
    def drafts(self) -> bool:
        """Whether the draft model takes part."""
        return self.request.params.needs_draft

    def pending(self, role: Role) -> int:
        """Tokens of whole blocks that the worker lacks."""
        return len(self.tokens) - self.cached[role]

    @property
    def prefilling(self) -> bool:
        """More than the one block that a decoding round folds in is owed somewhere.

        Where drafting adapts, the target need not wait for a draft that was left behind.
        """
        waits_for_draft = self.drafts and self.adaptive is None
        return self.lags("target") or (waits_for_draft and self.lags("draft"))

    def lags(self, role: Role) -> bool:
        return self.pending(role) > self.info.block_size

    @property
    def wants_draft(self) -> bool:
        """Whether the draft has a part in the next round, if only to catch up."""
        return self.drafts and (self.adaptive is None or self.adaptive.now.gamma > 0)

    @property
    def forced(self) -> list[int]:
        """Tokens of the prompt that are revealed in the open block next, where their log-probabilities are wanted."""
        if not self.request.report.prompt or self.prefilling or self.block[0] != self.info.mask_token_id:
            return []
        return self.request.prompt_ids[len(self.tokens) : len(self.tokens) + self.info.block_size]

    @property
    def goes_on(self) -> bool:
        """Whether the target can tell by itself what the next round is, if the draft was ahead (`next_work`)."""
        return not (self.cancelled or only_loop_knows(self.request.params) or self.prefilling or self.forced)

    def adapt(self, costs: Costs, running: int) -> None:
        """Choose how to draft in the next round, beside `running` sequences in all."""
        if self.adaptive is not None:
            self.adaptive.choose(costs, self.block.count(self.info.mask_token_id), running)

    def params(self) -> DecodeParams:
        """The request's settings, with this round's choice of how to draft."""
        params = self.request.params
        if self.adaptive is None or not self.adaptive.now.gamma:
            return params
        now = self.adaptive.now
        return replace(params, gamma=now.gamma, draft_steps=now.draft_steps, row_budget=now.row_budget)

    def gamma(self) -> int:
        """Tokens to draft this round; 0: the target denoises by itself."""
        if not self.wants_draft or self.prefilling or self.lags("draft") or self.forced:
            return 0
        tokens = tokens_to_draft(self.request.params, self.block.count(self.info.mask_token_id), self.fresh)
        return tokens if self.adaptive is None else min(self.adaptive.now.gamma, tokens)

    def work(self, role: Role, commit_limit: int) -> Work:
        """This round's part for one worker."""
        start = self.cached[role]
        return Work(
            seq_id=self.seq_id,
            params=self.params(),
            total_tokens=self.total_tokens,
            start=start,
            commit=self.tokens[start:],
            commit_limit=commit_limit,
            block=[] if self.prefilling else list(self.block),
            step=self.step,
            gamma=self.gamma(),
            prompt_tokens=len(self.request.prompt_ids),
            proposal=None if self.prefilling else self.own_draft,
            forced=self.forced,
            report=self.request.report,
        )

    def apply(self, verdict: Verdict) -> list[Output]:
        """Take a verdict in; return what became visible, at most one output."""
        self._learn_cached(verdict)
        if self.request.params.method == "s2d2":
            self._route(verdict)
        elif verdict.reveals:
            self.own_draft = verdict.proposal
        answer_offset = len(self.tokens) - len(self.request.prompt_ids)
        self.fresh = self.fresh and (not verdict.reveals or bool(self.forced))
        for (offset, _), logprob in zip(verdict.reveals, verdict.logprobs, strict=bool(verdict.logprobs)):
            self.logprobs[answer_offset + offset] = logprob
        for offset, token in verdict.reveals:
            assert self.block[offset] == self.info.mask_token_id, "a revealed position was revealed again"
            self.block[offset] = token
        self.step += verdict.steps
        self._count(verdict)
        if not verdict.reveals:
            return []
        output = self._show()
        if self.request.report.events:
            output.events = [self._event(verdict, answer_offset)]
        if self.finish_reason is None and self.info.mask_token_id not in self.block:
            self.tokens.extend(self.block)
            self.block = [self.info.mask_token_id] * self.info.block_size
            self.step, self.fresh = 0, True
        told = (output.token_ids, output.text, output.finish_reason, output.events, output.prompt_logprobs)
        return [output] if any(told) else []

    def _route(self, verdict: Verdict) -> None:
        """S2D2: hold a draft step's reveals back while its span is verified; they fill up what the step still owes."""
        params, size = self.request.params, len(self.block)
        if verdict.proposal is not None:
            if self.router.verify(verdict.proposal.confidence):
                self.own_draft, self.held = verdict.proposal, (verdict.reveals, verdict.kinds, verdict.logprobs)
                verdict.reveals, verdict.kinds, verdict.logprobs, verdict.steps = [], [], [], 0
            else:
                self.router.learn(False, len(verdict.reveals), size)
        elif verdict.reveals and self.own_draft is not None:
            self.own_draft = None
            self.router.learn(True, len(verdict.reveals), size)
            open_offsets = [offset for offset, token in enumerate(self.block) if token == self.info.mask_token_id]
            owed = min(quota(self.step, params.steps, size), len(open_offsets))
            for i, (offset, token) in enumerate(self.held[0]):
                if len(verdict.reveals) < owed and all(offset != other for other, _ in verdict.reveals):
                    verdict.reveals.append((offset, token))
                    verdict.kinds.append(self.held[1][i])
                    verdict.logprobs += self.held[2][i : i + 1]

    def _event(self, verdict: Verdict, answer_offset: int) -> RoundEvent:
        reveals = zip(verdict.reveals, verdict.kinds, strict=True)
        return RoundEvent(
            self.stats.rounds,
            answer_offset,
            [(answer_offset + offset, token) for offset, token in verdict.proposed],
            [(answer_offset + offset, token, kind) for (offset, token), kind in reveals],
        )

    def forget(self, role: Role) -> None:
        """A worker was replaced: it knows nothing of this sequence."""
        self.cached[role] = 0

    def drafted_ahead(self, work: Work) -> None:
        """The draft went on behind `work`: unless it lacks what comes before, it committed all that was owed."""
        if self.cached["draft"] >= work.start:
            self.cached["draft"] = max(self.cached["draft"], work.start + len(work.commit))

    def _learn_cached(self, verdict: Verdict) -> None:
        self.cached["target"] = verdict.cached
        if verdict.draft_cached is not None:
            self.cached["draft"] = verdict.draft_cached
        self.stats.cached_tokens = max(self.stats.cached_tokens, verdict.prefix_hit)

    def _count(self, verdict: Verdict) -> None:
        stats = self.stats
        stats.rounds += 1
        stats.target_forwards += verdict.target_forwards
        stats.draft_forwards += verdict.draft_forwards
        stats.drafted += verdict.drafted
        stats.accepted += verdict.accepted
        stats.recovered += verdict.recovered
        stats.bonus += verdict.bonus
        stats.fallback_tokens += verdict.fallback
        if verdict.drafted:
            histogram = stats.accept_histogram
            histogram[verdict.accepted] = histogram.get(verdict.accepted, 0) + 1

    def _revealed(self) -> list[int]:
        """Answer tokens of the revealed prefix that were not shown yet, in position order."""
        answer_start = len(self.request.prompt_ids)
        first = answer_start + self.shown
        out = self.tokens[first:]
        for token in self.block[max(0, first - len(self.tokens)) :]:
            if token == self.info.mask_token_id:
                break
            out.append(token)
        return out

    def _show(self) -> Output:
        """Hand over the revealed prefix up to whichever end comes first in position: EOS, stop string, max_tokens."""
        params = self.request.params
        new = self._revealed()
        eos = () if params.ignore_eos else self.info.eos_token_ids
        end = next((i for i, token in enumerate(new) if token in eos), None)
        room = params.max_tokens - self.shown
        final = (end is not None and end < room) or len(new) >= room
        if end is not None and end < room:
            new, reason = new[:end], "stop"
        else:
            new, reason = new[:room], "length"
        self.shown += len(new)
        ids, text = self.text.push(new, final)
        released = self.stats.completion_tokens
        self.stats.completion_tokens += len(ids)
        if self.text.stopped:
            self.finish_reason = "stop"
        elif final:
            self.finish_reason = "stop" if reason == "stop" else "length"
        output = Output(ids, text, self.finish_reason)
        if self.request.report.logprobs is not None:
            output.logprobs = [self.logprobs.pop(i) for i in range(released, self.stats.completion_tokens)]
            if -1 in self.logprobs:
                output.prompt_logprobs = [self.logprobs.pop(i) for i in range(-len(self.request.prompt_ids), 0)]
        return output
