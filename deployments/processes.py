"""Processes below this one (Linux), so that none is left behind."""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
KILL_S = 5.0
"""How long to wait for what was killed; a process that hangs in the kernel must not hang us."""


def descendants(root: int) -> set[int]:
    """Ids of all live processes below `root`."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may be gone by now
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    below: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in below | {root}} - below:
        below |= more
    return below


@contextlib.contextmanager
def nothing_left_behind(grace_s: float) -> Iterator[None]:
    """Kill what was started inside the context and still runs `grace_s` seconds after it.

    Ray starts processes that start processes; when one in the middle is killed, its children go to init, out of reach.
    As their subreaper we get them instead.
    """
    before = descendants(os.getpid())
    _become_subreaper(True)
    try:
        yield
    finally:
        ended = time.monotonic()
        while (left := descendants(os.getpid()) - before) and time.monotonic() < ended + grace_s + KILL_S:
            if time.monotonic() > ended + grace_s:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        _become_subreaper(False)


@contextlib.contextmanager
def killed_after(limit_s: float) -> Iterator[None]:
    """Kill all processes below this one if the context takes longer: whoever waits for one of them waits no more."""

    def kill() -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _become_subreaper(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
