"""A draft, a target and a loop in one process, as `simsd generate`, the benchmarks and the tests run them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simsd.config import LoopConfig, WorkerConfig
from simsd.loop.loop import Loop
from simsd.loop.rounds import DraftClient
from simsd.messages.request import FinishReason, Request, Stats
from simsd.messages.round import Proposals, Verdicts, Work
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.draft_process import DraftProcess
from simsd.worker.worker import Worker

if TYPE_CHECKING:
    from simsd.worker.tensor_parallel import LeadingWorker


class LocalClient:
    """Makes a worker in this process the loop's draft or target (`DraftClient`, `TargetClient`)."""

    queues = False

    def __init__(self, worker: "Worker | LeadingWorker") -> None:
        self.worker = worker
        self.info = worker.info

    def propose(self, batch: list[Work]) -> Proposals:
        return self.worker.propose(batch)

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> None:
        return None  # Both models run on this thread, so drafting ahead would gain nothing.

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        verdicts = self.worker.verify(batch, proposals)
        await asyncio.sleep(0)  # Requests can arrive and be cancelled between rounds.
        return verdicts

    async def verify_next(self, ahead: Any) -> Verdicts | None:
        return self.worker.verify_next(ahead)

    def release(self, seq_ids: list[str]) -> None:
        self.worker.release(seq_ids)


@dataclass(slots=True)
class Completion:
    """A whole answer to one request."""

    token_ids: list[int]
    text: str
    finish_reason: FinishReason
    stats: Stats


def build_local(target: WorkerConfig, draft: WorkerConfig | None, loop: LoopConfig, overlap: bool = False) -> Loop:
    """Load both models, check that they fit each other, and put a loop over them.

    With `overlap` the draft runs in a process of its own, beside the target. Raises what the workers and the loop
    raise: `ConfigError`, `CheckpointError` and `PairMismatchError`.
    """
    draft_client: DraftClient | None = None
    if draft:
        draft_client = DraftProcess(draft) if overlap else LocalClient(local_worker(draft))
    target_client = LocalClient(local_worker(target))
    tokenizer = Tokenizer.load(resolve_model(target.model, "target"), target_client.info.mask_token_id)
    return Loop(target_client, draft_client, tokenizer, loop)


def local_worker(config: WorkerConfig) -> "Worker | LeadingWorker":
    """Make a worker in this process. The other ranks of a tensor-parallel worker run in child processes."""
    if config.tensor_parallel == 1:
        return Worker(config)
    from simsd.worker.tensor_parallel import LocalRanks

    return LocalRanks(config)


async def collect(loop: Loop, request: Request) -> Completion:
    """Run one request to its end and return the whole answer."""
    token_ids: list[int] = []
    text: list[str] = []
    async for output in loop.generate(request):
        token_ids += output.token_ids
        text.append(output.text)
        if output.finish_reason is not None:
            assert output.stats is not None
            return Completion(token_ids, "".join(text), output.finish_reason, output.stats)
    raise AssertionError("a stream ended without a finish reason")


def generate_all(
    loop: Loop, requests: list[Request], on_done: Callable[[int, Completion], None] | None = None
) -> list[Completion]:
    """Run all requests, in their order and `max_running` of them at a time. The answers come back in the same order.

    `on_done(index, completion)` is called as each request ends.
    """

    async def one(index: int, gate: asyncio.Semaphore) -> Completion:
        async with gate:
            completion = await collect(loop, requests[index])
        if on_done is not None:
            on_done(index, completion)
        return completion

    async def everything() -> list[Completion]:
        gate = asyncio.Semaphore(loop.config.max_running)
        rounds = asyncio.create_task(loop.run())
        answers = asyncio.gather(*(one(index, gate) for index in range(len(requests))))
        both: list[asyncio.Future[Any]] = [rounds, answers]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if rounds.done():
                rounds.result()  # It raises if the loop died, so that no request waits for ever.
            return answers.result()
        finally:
            answers.cancel()
            rounds.cancel()

    return asyncio.run(everything())
