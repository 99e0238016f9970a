"""The block loop: rounds of continuous batching over a draft and a target.

    admit → plan → propose (draft) → verify and accept (target) → take in → output

The same code runs in one process and inside the Ray coordinator, because workers are called through two small
protocols, whether they are local or remote. The loop owns the requests and their state, and never touches a tensor. All
that a worker knows can be rebuilt from tokens, so a lost worker costs only the prefill of the running sequences.
"""

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from simsd.config import LoopConfig
from simsd.errors import ContextLengthError, InternalError, QueueFullError, RequestError, WorkerLostError
from simsd.loop.adaptive import Costs
from simsd.loop.metrics import LoopMetrics
from simsd.loop.rounds import DraftClient, Round, RoundQueue, TargetClient
from simsd.loop.sequence import Sequence
from simsd.messages.pair import check_pair
from simsd.messages.request import Output, Request
from simsd.messages.round import Verdicts, Work
from simsd.messages.worker import Role, WorkerInfo
from simsd.tokens.text import TextStream
from simsd.tokens.tokenizer import Tokenizer

Replace = Callable[[Role], Awaitable[Any]]
"""Returns a new client for the role, in place of a lost one."""
OnRound = Callable[[float, Verdicts], None]
"""Is called after each round with the time at which it began (`time.perf_counter`) and its verdicts."""


class Loop:
    """The block loop. `run` makes rounds while there is work, and `generate` is the stream of one request.

    It lives in one event loop and has no threads. If `draft` is None, requests that need a draft model are refused. A
    draft that does not fit the target raises `PairMismatchError`. Without `replace`, a lost worker fails the running
    requests.
    """

    def __init__(
        self,
        target: TargetClient,
        draft: DraftClient | None,
        tokenizer: Tokenizer,
        config: LoopConfig,
        replace: Replace | None = None,
    ) -> None:
        if draft is not None:
            check_pair(draft.info, target.info)
        self.target, self.draft = target, draft
        self.tokenizer, self.config, self.replace = tokenizer, config, replace
        self.waiting: deque[Sequence] = deque()
        self.running: dict[str, Sequence] = {}
        self.metrics = LoopMetrics()
        self.costs = Costs()
        self.on_round: OnRound | None = None
        self._changing: set[Role] = set()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Make rounds while there is work, until cancelled. Only one call may run at a time.

        A later call may run in another event loop.
        """
        self._wake = asyncio.Event()
        while True:
            if not (self.running or self.waiting or self._changing):
                self._wake.clear()
                await self._wake.wait()
            try:
                while self._changing:
                    await self._replace(self._changing.pop())
                await self.round()
            except WorkerLostError as lost:
                await self._recover(lost)
            except Exception as error:  # A bug fails the running requests, but not the server.
                self._fail(error)

    async def round(self) -> None:
        """Admit, plan, run and take in: one round of all running sequences, whatever phase each is in.

        More rounds follow while the same sequences go on. The next round is then sent to the target's queue before the
        verdicts of this one are back. The target makes the round that the loop would ask for, or none.
        """
        self._drop_cancelled()
        self._admit()
        drafting, verifying = self._plan()
        if not verifying:
            await asyncio.sleep(0)
            return
        with RoundQueue(self.draft, self.target, self.config) as rounds:
            asked: Round | None = rounds.ask(drafting, verifying)
            while asked is not None:
                if rounds.may_follow and self._same_go_on(asked):
                    rounds.let_follow()
                verdicts = await rounds.verdicts()
                if verdicts is None:
                    return
                self._take_in(asked, verdicts)
                following = self._drafting_next(asked, verdicts)
                asked = None if following is None else rounds.followed(following)

    def _same_go_on(self, asked: Round) -> bool:
        """Whether another round of the same sequences may follow before the verdicts of this one are back."""
        return (
            not self._changing
            and self.running.keys() == set(asked.seq_ids)
            and all(sequence.goes_on for sequence in self.running.values())
            and not (self.waiting and self._has_room(self.waiting[0]))
        )

    def _drafting_next(self, asked: Round, verdicts: Verdicts) -> list[Work] | None:
        """Return the draft's works in the round that follows without being asked for.

        It is None if a sequence cannot go on by itself, because it ended or a drafted token of it was not accepted.
        """
        going = [self.running[i] for i in asked.seq_ids if i in self.running and not self.running[i].cancelled]
        drafting = [sequence.work("draft", sequence.info.block_size) for sequence in going if sequence.gamma()]
        stood = {seq_id for seq_id, v in verdicts.items.items() if v.drafted and v.accepted == v.drafted}
        goes = len(going) == len(asked.seq_ids) and stood.issuperset(work.seq_id for work in drafting)
        return drafting if goes else None

    def _take_in(self, asked: Round, verdicts: Verdicts) -> None:
        """Take in the verdicts of a round that is over."""
        self.metrics.count(asked.drafting, asked.verifying, verdicts)
        self.costs.learn(verdicts, len(asked.drafting))
        if self.on_round is not None:
            self.on_round(asked.began, verdicts)
        self._commit(verdicts)
        for work in asked.ahead:
            if sequence := self.running.get(work.seq_id):
                sequence.drafted_ahead(work)

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        """Admit a request and stream what becomes visible. The last output has finish_reason and stats.

        Raises `RequestError`, `ContextLengthError` or `QueueFullError` before the first output, and `InternalError`
        if a round fails. Closing or cancelling the iterator frees the request's pages in both workers before the next
        round is planned.
        """
        sequence = self._accept(request)
        try:
            while True:
                output = await sequence.outputs.get()
                if isinstance(output, Exception):
                    raise output
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            sequence.cancelled = True
            with suppress(ValueError):
                self.waiting.remove(sequence)  # The next round, which would drop it, may be far off.
            self._wake.set()

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting requests."""
        return len(self.running), len(self.waiting)

    def check(self, request: Request) -> Sequence:
        """Return the request's first state; `RequestError` or `ContextLengthError` if it can never be served."""
        info = self.target.info
        params = request.params.resolve(info.block_size)
        if params.needs_draft and self.draft is None:
            raise RequestError(f"method {params.method!r} needs a draft model; this server has none", "method")
        if not request.prompt_ids:
            raise RequestError("the prompt is empty", "prompt")
        if any(not 0 <= token < info.vocab_size or token == info.mask_token_id for token in request.prompt_ids):
            raise RequestError(
                f"prompt token ids must be in 0..{info.vocab_size - 1} and not the mask token {info.mask_token_id}",
                "prompt",
            )
        for token, _ in params.logit_bias:
            if not 0 <= token < info.vocab_size:
                raise RequestError(f"logit_bias has token id {token}; ids are 0 to {info.vocab_size - 1}", "logit_bias")
        stream = TextStream(self.tokenizer, params.stop, params.min_tokens)
        sequence = Sequence(dataclasses.replace(request, params=params), info, stream)
        length = f"{len(request.prompt_ids)} prompt tokens and max_tokens {params.max_tokens}"
        for role, client_info, share in self._pools(sequence):
            if sequence.total_tokens > client_info.max_model_len:
                raise ContextLengthError(
                    f"{length} exceed the context of {client_info.max_model_len} tokens of the {role} (whole blocks)",
                    "max_tokens",
                )
            if client_info.pages_needed(sequence.total_tokens) > int(client_info.pages * share):
                raise ContextLengthError(f"{length} never fit the {role}'s {client_info.pages} pages", "max_tokens")
        return sequence

    def _accept(self, request: Request) -> Sequence:
        if request.request_id in self.running or any(s.seq_id == request.request_id for s in self.waiting):
            raise RequestError(f"request id {request.request_id!r} is in use", "request_id")
        sequence = self.check(request)
        # If no request waits, a request that fits now needs no place in the queue.
        if len(self.waiting) >= self.config.max_queued and (self.waiting or not self._has_room(sequence)):
            raise QueueFullError(f"{len(self.waiting)} requests are waiting already; try again later")
        self.waiting.append(sequence)
        self._admit()  # Requests that arrive before the next round must see the true length of the queue.
        self._wake.set()
        return sequence

    def _pools(self, sequence: Sequence) -> list[tuple[Role, WorkerInfo, float]]:
        """Return the page pools in which a sequence needs room, as (role, worker, share of the pool for this loop)."""
        pools: list[tuple[Role, WorkerInfo, float]] = [("target", self.target.info, 1.0)]
        if sequence.drafts and self.draft is not None:
            pools.append(("draft", self.draft.info, self.config.draft_share))
        return pools

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether there is a slot, and pages in both workers for the whole prompt and `max_tokens`.

        All of these pages are reserved at once, so no running sequence is ever evicted.
        """
        if len(self.running) >= self.config.max_running:
            return False
        for role, info, share in self._pools(sequence):
            holders = [s for s in self.running.values() if role == "target" or s.drafts]
            used = sum(info.pages_needed(s.total_tokens) for s in holders)
            if used + info.pages_needed(sequence.total_tokens) > int(info.pages * share):
                return False
        return True

    def _admit(self) -> None:
        """Admit waiting requests, first come, first served. A small request does not overtake a large one."""
        while self.waiting and self._has_room(self.waiting[0]):
            sequence = self.waiting.popleft()
            sequence.admitted_at = time.perf_counter()
            sequence.stats.queue_s = sequence.admitted_at - sequence.queued_at
            self.running[sequence.seq_id] = sequence

    def _plan(self) -> tuple[list[Work], list[Work]]:
        """Return this round's works for draft and target.

        Prompts share the budget `prefill_rows` of each model. Committing what a decoding round may is always allowed.
        """
        block_size = self.target.info.block_size
        batches: dict[Role, list[Work]] = {"draft": [], "target": []}
        budget: dict[Role, int] = {"draft": self.config.prefill_rows, "target": self.config.prefill_rows}
        for sequence in self.running.values():
            sequence.adapt(self.costs, len(self.running))
            for role, batch in batches.items():
                if role == "draft" and not sequence.wants_draft:
                    continue
                pending = sequence.pending(role)
                if sequence.lags(role):
                    limit = min(pending, budget[role])
                    budget[role] -= limit // block_size * block_size
                else:
                    limit = max(pending, block_size)
                # The target always gets the sequence's work, because its verdict reports what is cached in any case.
                batch.append(sequence.work(role, limit))
        # A draft that has one block to commit and is not asked for tokens can commit it in a later round.
        drafting = [work for work in batches["draft"] if work.gamma or len(work.commit) > block_size]
        return drafting, batches["target"]

    def _commit(self, verdicts: Verdicts) -> None:
        """Apply every verdict, send what became visible to the streams, and release finished sequences."""
        now = time.perf_counter()
        for seq_id, verdict in verdicts.items.items():
            sequence = self.running.get(seq_id)
            if sequence is None or sequence.cancelled:
                continue
            stats = sequence.stats
            if sequence.adaptive is not None and verdict.revealed:
                sequence.adaptive.learn(self.costs, verdict)
            outputs = sequence.apply(verdict)
            if sequence.decoding_at is None and not (sequence.prefilling or sequence.forced):
                sequence.decoding_at = sequence.admitted_at if verdict.revealed else now
                stats.prefill_s = sequence.decoding_at - sequence.admitted_at
                self.metrics.count_prompt(stats)
            if sequence.finish_reason is not None:
                stats.decode_s = now - (sequence.decoding_at or now)
                outputs[-1].stats = stats
                del self.running[seq_id]
                self._release([sequence])
            for output in outputs:
                self.metrics.generated_tokens += len(output.token_ids)
                sequence.outputs.put_nowait(output)

    def _drop_cancelled(self) -> None:
        gone = [sequence for sequence in self.running.values() if sequence.cancelled]
        for sequence in gone:
            del self.running[sequence.seq_id]
        self._release(gone)
        self.waiting = deque(sequence for sequence in self.waiting if not sequence.cancelled)

    def _release(self, sequences: list[Sequence]) -> None:
        if not sequences:
            return
        self.target.release([sequence.seq_id for sequence in sequences])
        drafted = [sequence.seq_id for sequence in sequences if sequence.drafts]
        if drafted and self.draft is not None:
            self.draft.release(drafted)

    async def _recover(self, lost: WorkerLostError) -> None:
        """Replace a lost worker, or fail the running requests if it cannot be replaced."""
        if self.replace is None:
            self._fail(lost)
        else:
            await self._replace("draft" if lost.worker == "draft" else "target")

    def change(self, role: Role) -> None:
        """Replace the worker of the role before the next round, although it still works."""
        self._changing.add(role)
        self._wake.set()

    async def _replace(self, role: Role) -> None:
        """Get a new worker for the role. The next rounds rebuild running sequences in it from their tokens."""
        assert self.replace is not None
        try:
            client = await self.replace(role)
        except Exception as error:
            self._fail(error)
            return
        if role == "draft":
            self.draft = client
        else:
            self.target = client
        for sequence in self.running.values():
            sequence.forget(role)

    def _fail(self, error: Exception) -> None:
        failed = list(self.running.values())
        self.running.clear()
        for sequence in failed:
            wrapped = InternalError(f"{type(error).__name__} in a round: {error}")
            wrapped.__cause__ = error
            sequence.outputs.put_nowait(wrapped)
        self._release(failed)
