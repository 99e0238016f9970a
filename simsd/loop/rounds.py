"""The rounds that are under way, and the workers as the loop calls them, here or elsewhere."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from simsd.config import LoopConfig
from simsd.messages.round import Verdicts, Work
from simsd.messages.worker import WorkerInfo


class DraftClient(Protocol):
    """A draft worker, here or elsewhere."""

    info: WorkerInfo

    def propose(self, batch: list[Work]) -> Any:
        """Proposals, or a reference to them that the target client understands; returns at once."""

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> Any:
        """Draft on behind the whole blocks that `batch` had proposed; does not wait.

        taken: works whose proposals are being verified that were drafted ahead; of them are those of `batch`, if any.
        What the target's `verify_next` takes. None where it was not done, since both could not work at the same time.
        """

    def release(self, seq_ids: list[str]) -> None:
        """Give pages back; does not wait."""


class TargetClient(Protocol):
    """A target worker, here or elsewhere."""

    info: WorkerInfo
    queues: bool
    """Whether a call can wait there while another is under way; if not, `verify_next` is not asked for."""

    def verify(self, batch: list[Work], proposals: Any) -> Awaitable[Verdicts]:
        """Raises `WorkerLostError` that says which worker died; a dead draft shows here, through its proposals."""

    def verify_next(self, ahead: Any) -> Awaitable[Verdicts | None]:
        """The round after the last call's, with the same sequences. None, and nothing done, unless all can go on.

        ahead: of the draft's `propose_ahead`, or None.
        """

    def release(self, seq_ids: list[str]) -> None:
        """Give pages back; does not wait."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round that was asked for: when, and of whom. `ahead` are the works behind which the draft goes on meanwhile."""

    began: float
    drafting: list[Work]
    verifying: list[Work]
    ahead: list[Work]
    reference: Any = None
    """What the target is handed of the draft's going ahead."""

    @property
    def seq_ids(self) -> list[str]:
        return [work.seq_id for work in self.verifying]


class RoundQueue:
    """Asks for a round, and lets others of the same sequences follow it before its verdicts are here.

    Leaving it as a context drops what nobody waits for any more.
    """

    def __init__(self, draft: DraftClient | None, target: TargetClient, config: LoopConfig) -> None:
        self._draft, self._target, self._config = draft, target, config
        self._calls: list[Awaitable[Verdicts | None]] = []
        self._now: Round | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for call in self._calls:
            if isinstance(call, asyncio.Future):
                call.add_done_callback(lambda done: done.cancelled() or done.exception())
                call.cancel()

    def ask(self, drafting: list[Work], verifying: list[Work]) -> Round:
        """Propose, and verify what is proposed; neither is waited for."""
        began = time.perf_counter()
        proposals = self._draft.propose(drafting) if drafting and self._draft else None
        ahead, reference = self._go_ahead(drafting, taken=[])
        self._calls.append(self._target.verify(verifying, proposals))
        self._now = Round(began, drafting, verifying, ahead, reference)
        return self._now

    def let_follow(self) -> None:
        """Let the target make the next round by itself, where it has a queue and the draft is ahead for all it needs.

        The sequences must be such that it can tell what comes (`simsd.block.successor`).
        """
        now = self._now
        assert now is not None
        if self._config.async_scheduling and self._target.queues and len(now.drafting) == len(now.ahead):
            self._calls.append(asyncio.ensure_future(self._target.verify_next(now.reference)))

    async def verdicts(self) -> Verdicts | None:
        """Of the round under way; None if it was left to the target, which could not go on."""
        found = await self._calls[0]
        del self._calls[0]
        return found

    def followed(self, drafting: list[Work]) -> Round | None:
        """The round that followed by itself, in which the draft has the works `drafting`; None if none did."""
        if not self._calls or self._now is None:
            return None
        began = time.perf_counter()
        ahead, reference = self._go_ahead(drafting, taken=drafting)
        self._now = Round(began, drafting, self._now.verifying, ahead, reference)
        return self._now

    def _go_ahead(self, drafting: list[Work], taken: list[Work]) -> tuple[list[Work], Any]:
        """Let the draft go on behind each block that it was asked the whole of; `taken` as of `propose_ahead`.

        -> those works, and the reference of what comes of them; neither where the draft cannot go on meanwhile.
        """
        if self._draft is None or not self._config.draft_ahead:
            return [], None
        whole = [work for work in drafting if work.block is not None and work.gamma == work.block.left]
        reference = self._draft.propose_ahead(whole, taken) if whole or taken else None
        return (whole, reference) if whole and reference is not None else ([], None)
