"""A draft in a child process on this machine, which drafts the next block while the target verifies this one.

Calls go through a pipe, in order.
"""

import logging
import multiprocessing
import signal
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, cast

from simsd.config import WorkerConfig
from simsd.errors import WorkerLostError
from simsd.messages.round import Ahead, Proposals, Work
from simsd.messages.worker import WorkerInfo
from simsd.worker.worker import Worker

CLOSE_S = 5.0

logger = logging.getLogger(__name__)


class DraftProcess:
    """The loop's client of a draft in a child process. The process ends with the client, or with this process."""

    def __init__(self, config: WorkerConfig) -> None:
        """Start the process and load the draft in it. Errors of loading are raised here."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, config), daemon=True)
        process.start()
        theirs.close()
        self.close = weakref.finalize(self, _stop, self._pipe, process)
        self.pid = process.pid
        self.info = cast(WorkerInfo, self._receive())
        self._went_ahead = False

    def propose(self, batch: list[Work]) -> Proposals:
        """Return the proposals for `batch`: those that were drafted ahead if they answer it, else new ones.

        The call waits, since the target has nothing to do before. `WorkerLostError` if the process is gone.
        """
        if self._went_ahead:
            self._went_ahead = False
            ahead = cast(Ahead, self._receive())
            if proposals := ahead.proposals(batch):
                self._send("take_ahead", batch)
                return proposals
        self._send("propose", batch)
        return cast(Proposals, self._receive())

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> bool:
        self._send("propose_ahead", batch)
        self._went_ahead = True
        return True

    def release(self, seq_ids: list[str]) -> None:
        with suppress(WorkerLostError):  # The pages of a lost process are gone with it.
            self._send("release", seq_ids)

    def _send(self, method: str, argument: Any) -> None:
        try:
            self._pipe.send((method, argument))
        except OSError as error:
            raise _lost() from error

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise _lost() from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _lost() -> WorkerLostError:
    return WorkerLostError("the draft's process is gone", "draft")


def _stop(pipe: Connection, process: Any) -> None:
    pipe.close()
    process.join(CLOSE_S)
    if process.is_alive():
        process.kill()


def _serve(pipe: Connection, config: WorkerConfig) -> None:
    """Make the calls that come through the pipe, until its other end is closed. Only calls that draft are answered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent process, which then closes the pipe.
    try:
        worker = Worker(config)
        pipe.send(worker.info)
    except Exception as error:
        pipe.send(error)
        return
    with suppress(EOFError, OSError):  # These say that the other end is closed.
        while True:
            method, argument = pipe.recv()
            try:
                answer = getattr(worker, method)(argument)
            except Exception as error:
                answer = error
                logger.exception("%s failed in the draft's process", method)
            if method in ("propose", "propose_ahead"):
                pipe.send(answer)
