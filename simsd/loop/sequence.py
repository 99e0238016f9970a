"""The state of one request: its decided tokens, its open block, what is visible, and whether it is finished."""

import asyncio
import time
from dataclasses import dataclass, field, replace

from simsd.block.successor import only_loop_knows, tokens_to_draft
from simsd.loop.adaptive import Adaptive, Costs
from simsd.loop.routing import Router
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, FinishReason, Output, Request, RoundEvent, Stats, TokenLogprob
from simsd.messages.round import BlockVerdict, Proposal, Verdict, Work
from simsd.messages.worker import Role, WorkerInfo
from simsd.tokens.text import TextStream


@dataclass(slots=True)
class Sequence:
    """A request that is served.

    tokens: the tokens of the whole blocks before the open one, of prompt and answer. block: the open block.
    cached: how many of `tokens` each worker holds KV for, as far as the loop knows.
    shown: how many tokens of the answer were passed on to `text`, which may hold some of them back.
    own_draft: what the target drafted for itself.
    logprobs: log-probabilities of revealed tokens that were not released yet, by their index in the answer.
    outputs: what the request's stream takes. cancelled: whether the stream was closed.
    queued_at, admitted_at, decoding_at: times of `time.perf_counter`.
    """

    request: Request
    info: WorkerInfo
    text: TextStream
    tokens: list[int] = field(init=False)
    block: BlockState = field(init=False)
    cached: dict[Role, int] = field(default_factory=lambda: {"draft": 0, "target": 0})
    shown: int = 0
    own_draft: Proposal | None = None
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
        self.block = BlockState.behind(whole, known[whole:], size, self.info.mask_token_id)
        self.stats.prompt_tokens = len(prompt)
        params = self.request.params
        self.router = Router(params)
        self.adaptive = Adaptive(params, size) if params.adaptive and params.needs_draft else None

    @property
    def seq_id(self) -> str:
        return self.request.request_id

    @property
    def total_tokens(self) -> int:
        """The tokens of the prompt and the longest answer, rounded up to whole blocks. Both workers reserve these."""
        size = self.info.block_size
        return -(-(len(self.request.prompt_ids) + self.request.params.max_tokens) // size) * size

    @property
    def drafts(self) -> bool:
        """Whether the draft model takes part in this request."""
        return self.request.params.needs_draft

    def pending(self, role: Role) -> int:
        """Return how many tokens of whole blocks the worker holds no KV for."""
        return len(self.tokens) - self.cached[role]

    @property
    def prefilling(self) -> bool:
        """Whether a worker lacks more than a decoding round can commit.

        With adaptive drafting the target does not wait for a draft that lacks more.
        """
        waits_for_draft = self.drafts and self.adaptive is None
        return self.lags("target") or (waits_for_draft and self.lags("draft"))

    def lags(self, role: Role) -> bool:
        """Whether the worker lacks more than one block, beside blocks that it assumed in the last rounds."""
        return self.pending(role) > self.info.block_size * self.request.params.chain_length

    @property
    def wants_draft(self) -> bool:
        """Whether the draft takes part in the next round, if only to catch up."""
        return self.drafts and (self.adaptive is None or self.adaptive.now.gamma > 0)

    @property
    def forced(self) -> list[int]:
        """Tokens of the prompt that the next round reveals in the open block, to report their log-probabilities."""
        if not self.request.report.prompt or self.prefilling or self.block.tokens[0] != self.block.mask_token_id:
            return []
        return self.request.prompt_ids[self.block.start : self.block.start + self.block.size]

    @property
    def goes_on(self) -> bool:
        """Whether the target can derive the next round by itself (`next_work`), if the draft has worked ahead."""
        return not (self.cancelled or only_loop_knows(self.request.params) or self.prefilling or self.forced)

    def adapt(self, costs: Costs, running: int) -> None:
        """Choose how to draft in the next round, in which `running` sequences run."""
        if self.adaptive is not None:
            self.adaptive.choose(costs, self.block.left, running)

    def params(self) -> DecodeParams:
        """Return the request's settings, with this round's choice of how to draft."""
        params = self.request.params
        if self.adaptive is None or not self.adaptive.now.gamma:
            return params
        now = self.adaptive.now
        # If the whole block is drafted, blocks beyond it may be, too, and they have more open positions.
        gamma = params.gamma if now.gamma == self.block.left else now.gamma
        return replace(params, gamma=gamma, draft_steps=now.draft_steps, row_budget=now.row_budget)

    def gamma(self) -> int:
        """Return how many tokens to draft in this round; with 0 the target denoises by itself."""
        if not self.wants_draft or self.prefilling or self.lags("draft") or self.forced:
            return 0
        tokens = tokens_to_draft(self.request.params, self.block)
        return tokens if self.adaptive is None else min(self.adaptive.now.gamma, tokens)

    def work(self, role: Role, commit_limit: int) -> Work:
        """Return this round's work for one worker."""
        start = self.cached[role]
        return Work(
            seq_id=self.seq_id,
            params=self.params(),
            total_tokens=self.total_tokens,
            start=start,
            commit=self.tokens[start:],
            commit_limit=commit_limit,
            block=None if self.prefilling else self.block,
            gamma=self.gamma(),
            prompt_tokens=len(self.request.prompt_ids),
            proposal=None if self.prefilling else self.own_draft,
            forced=self.forced,
            report=self.request.report,
        )

    def apply(self, verdict: Verdict) -> list[Output]:
        """Apply a verdict and return what became visible, which is at most one output."""
        self._learn_cached(verdict)
        self._count(verdict)
        shown: Output | None = None
        first, size = self.block.start, self.info.block_size
        for index, decided in enumerate(self._routed(verdict)):
            if self.finish_reason is not None:
                break
            output = self._take_in(decided) if decided.reveals else Output([], "")
            # Every round has an event, and so has each block that was drafted beyond the open one.
            if self.request.report.events and (not index or decided.reveals or decided.proposed):
                output.events = [self._event(decided, first + index * size)]
            if shown is None:
                shown = output
            else:
                shown.add(output)
        if shown is None:
            return []
        told = (shown.token_ids, shown.text, shown.finish_reason, shown.events, shown.prompt_logprobs)
        return [shown] if any(told) else []

    def _routed(self, verdict: Verdict) -> list[BlockVerdict]:
        """Return the decided blocks as they stand. S2D2's routing may hold back all that a draft step reveals."""
        if self.request.params.routes:
            blocks = [self.router.route(decided, verdict.proposal, self.block) for decided in verdict.blocks]
            self.own_draft = self.router.span
            return blocks
        if verdict.revealed:
            self.own_draft = verdict.proposal
        return verdict.blocks

    def _take_in(self, decided: BlockVerdict) -> Output:
        """Reveal what was decided about the open block, and return what became visible."""
        answer_offset = self.block.start - len(self.request.prompt_ids)
        for (offset, _), logprob in zip(decided.reveals, decided.logprobs, strict=bool(decided.logprobs)):
            self.logprobs[answer_offset + offset] = logprob
        self.block = self.block.reveal(decided.reveals, decided.steps, decoded=not self.forced)
        output = self._show()
        if self.finish_reason is None and self.block.full:
            self.tokens.extend(self.block.tokens)
            self.block = self.block.following()
        return output

    def _event(self, decided: BlockVerdict, start: int) -> RoundEvent:
        """Return what happened in the block at position `start` of the sequence."""
        answer_offset = start - len(self.request.prompt_ids)
        reveals = zip(decided.reveals, decided.kinds, strict=True)
        return RoundEvent(
            self.stats.rounds,
            answer_offset,
            [(answer_offset + offset, token) for offset, token in decided.proposed],
            [(answer_offset + offset, token, kind) for (offset, token), kind in reveals],
        )

    def forget(self, role: Role) -> None:
        """Note that the worker of this role was replaced, and that the new one knows nothing of this sequence."""
        self.cached[role] = 0

    def drafted_ahead(self, work: Work) -> None:
        """Note that the draft went on after the block of `work`; unless it lacked earlier tokens, it committed all."""
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

    def _show(self) -> Output:
        """Show new tokens up to the first open position, EOS, stop string or `max_tokens`, whichever comes first."""
        prompt_tokens = len(self.request.prompt_ids)
        end, reason = self.block.visible_end(self.request.params, prompt_tokens, self.info.eos_token_ids)
        # All tokens that were not shown yet are in the open block, since each block is shown before the next one opens.
        first = max(0, prompt_tokens + self.shown - self.block.start)
        new = list(self.block.tokens[first : max(first, end - self.block.start)])
        self.shown += len(new)
        ids, text = self.text.push(new, final=reason is not None)
        released = self.stats.completion_tokens
        self.stats.completion_tokens += len(ids)
        self.finish_reason = "stop" if self.text.stopped else reason
        output = Output(ids, text, self.finish_reason)
        if self.request.report.logprobs is not None:
            output.logprobs = [self.logprobs.pop(i) for i in range(released, self.stats.completion_tokens)]
            if -1 in self.logprobs:
                output.prompt_logprobs = [self.logprobs.pop(i) for i in range(-prompt_tokens, 0)]
        return output
