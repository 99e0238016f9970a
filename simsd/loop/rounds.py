"""The rounds that are under way, and the protocols by which the loop calls local and remote workers."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from simsd.config import LoopConfig
from simsd.messages.round import Verdicts, Work
from simsd.messages.worker import WorkerInfo


class DraftClient(Protocol):
    """A draft worker, local or remote."""

    info: WorkerInfo

    def propose(self, batch: list[Work]) -> Any:
        """Ask for proposals. The result is `Proposals`, or a reference to them that the target client understands.

        The call may return before the draft is done.
        """

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> Any:
        """Draft the next blocks as if the whole blocks that `batch` proposed were accepted. The call does not wait.

        taken: works whose proposals were drafted ahead and are being verified now. If there are any, the works of
        `batch` are among them. Returns what the target's `verify_next` takes, or None if nothing was drafted, because
        the draft and the target cannot work at the same time.
        """

    def release(self, seq_ids: list[str]) -> None:
        """Free the pages of these sequences. The call does not wait."""


class TargetClient(Protocol):
    """A target worker, local or remote."""

    info: WorkerInfo
    queues: bool
    """Whether a call can wait in the worker while another one runs. If not, `verify_next` is not called."""

    def verify(self, batch: list[Work], proposals: Any) -> Awaitable[Verdicts]:
        """Verify a round. `WorkerLostError` says which worker died; a lost draft is noticed here, by its proposals."""

    def verify_next(self, ahead: Any) -> Awaitable[Verdicts | None]:
        """Verify the round after the last one, with the same sequences, as the target derives it from its verdicts.

        ahead: the result of the draft's `propose_ahead`, or None. Unless all sequences can go on, the target does
        nothing and returns None.
        """

    def release(self, seq_ids: list[str]) -> None:
        """Free the pages of these sequences. The call does not wait."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is under way.

    began: when it was asked for (`time.perf_counter`). drafting, verifying: the works of the draft and of the target.
    ahead: the works whose drafted blocks the draft takes for accepted, to draft the next blocks meanwhile.
    """

    began: float
    drafting: list[Work]
    verifying: list[Work]
    ahead: list[Work]
    reference: Any = None
    """The result of `propose_ahead` for the works `ahead`, which the target is given."""

    @property
    def seq_ids(self) -> list[str]:
        return [work.seq_id for work in self.verifying]


class RoundQueue:
    """Asks for a round, and lets other rounds of the same sequences follow before its verdicts are back.

    It is a context manager, which drops the calls that are still under way at its end.
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
        """Ask the draft for proposals and the target to verify them, without waiting for the verdicts."""
        began = time.perf_counter()
        proposals = self._draft.propose(drafting) if drafting and self._draft else None
        ahead, reference = self._go_ahead(drafting, taken=[])
        self._calls.append(self._target.verify(verifying, proposals))
        self._now = Round(began, drafting, verifying, ahead, reference)
        return self._now

    @property
    def may_follow(self) -> bool:
        """Whether the target has a queue, and the draft is ahead for all sequences that it drafts for."""
        now = self._now
        ahead = now is not None and len(now.drafting) == len(now.ahead)
        return ahead and self._config.async_scheduling and self._target.queues

    def let_follow(self) -> None:
        """Let the target make the next round by itself, where that may follow.

        The target must be able to derive the next work of each sequence (`simsd.block.successor`).
        """
        assert self._now is not None
        self._calls.append(asyncio.ensure_future(self._target.verify_next(self._now.reference)))

    async def verdicts(self) -> Verdicts | None:
        """Return the verdicts of the round under way; None if it was left to the target and the target could not."""
        found = await self._calls[0]
        del self._calls[0]
        return found

    def followed(self, drafting: list[Work]) -> Round | None:
        """Return the round that followed by itself, with the draft's works `drafting`; None if there is none."""
        if not self._calls or self._now is None:
            return None
        began = time.perf_counter()
        ahead, reference = self._go_ahead(drafting, taken=drafting)
        self._now = Round(began, drafting, self._now.verifying, ahead, reference)
        return self._now

    def _go_ahead(self, drafting: list[Work], taken: list[Work]) -> tuple[list[Work], Any]:
        """Let the draft go on after each block that it was asked to fill; `taken` is as in `propose_ahead`.

        Returns those works and the result of `propose_ahead`; no works and None if the draft does not work ahead.
        """
        if self._draft is None or not self._config.draft_ahead:
            return [], None
        whole = [work for work in drafting if work.block is not None and work.gamma == work.block.left]
        reference = self._draft.propose_ahead(whole, taken) if whole or taken else None
        return (whole, reference) if whole and reference is not None else ([], None)
