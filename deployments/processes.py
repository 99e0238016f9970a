"""Finds and ends the processes below this one (Linux), so that none is left behind."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
KILL_S = 5.0
"""How long to wait for killed processes. One that hangs in the kernel is not waited for any longer."""


def descendants(root: int) -> set[int]:
    """Return the ids of all live processes below `root`."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may have ended by now
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    below: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in below | {root}} - below:
        below |= more
    return below


@contextlib.contextmanager
def nothing_left_behind(grace_s: float) -> Iterator[Callable[[], None]]:
    """Kill the processes that were started inside the context and still run `grace_s` seconds after its end.

    It yields a function that kills them at once. Ray's processes start further processes. If one in the middle is
    killed, its children would become init's, out of reach; as their subreaper, this process gets them instead.
    """
    before = descendants(os.getpid())

    def kill() -> None:
        for pid in descendants(os.getpid()) - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    _become_subreaper(True)
    try:
        yield kill
    finally:
        ended = time.monotonic()
        while descendants(os.getpid()) - before and time.monotonic() < ended + grace_s + KILL_S:
            if time.monotonic() > ended + grace_s:
                kill()
            time.sleep(POLL_S)
        _become_subreaper(False)


def _become_subreaper(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
