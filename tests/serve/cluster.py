"""A look inside the running application: processes and pages."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ray import serve

from deployments.coordinator import EngineState
from deployments.local import APP_NAME
from deployments.processes import descendants
from simsd.messages.worker import Role

FREED_WITHIN_S = 1.0
"""How soon after its client has left a request must hold no pages any more."""


def engines(app: str = APP_NAME) -> dict[Role, EngineState]:
    """Both engines as an application's coordinator sees them."""
    return serve.get_deployment_handle("Coordinator", app).engines.remote().result(timeout_s=30)


def held() -> dict[Role, tuple[int, int]]:
    """(pages held, sequences) of each engine."""
    return {role: (state.pages.held, state.pages.sequences) for role, state in engines().items()}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pids_of(title: str) -> list[int]:
    """Our processes whose command line begins with `title`; Ray names its workers by what they run."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title.encode()):
                found.append(pid)
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> float:
    """Seconds until the condition held; asserts that it did in time."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s} s"
        time.sleep(every_s)
    return time.monotonic() - began


def keep_asking(ask: Callable[[], str], until: threading.Event) -> list[str]:
    """Answers of one client that asks again until the event, once at least."""
    texts = [ask()]
    while not until.is_set():
        texts.append(ask())
    return texts
