"""Nothing is left behind, orphans included."""

import os
import signal
import subprocess
import threading
import time

from deployments.processes import descendants, nothing_left_behind
from tests.serve.cluster import alive


def orphan() -> int:
    """A process whose parent has gone."""
    command = "sleep 300 >/dev/null 2>&1 & echo $!"
    return int(subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout)


def test_orphans_are_killed_after_their_grace() -> None:
    with nothing_left_behind(grace_s=0.3):
        pid = orphan()
        assert pid in descendants(os.getpid())
        ended = time.monotonic()
    assert not alive(pid)
    assert time.monotonic() - ended >= 0.3


def test_what_ran_before_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "300"]) as before:
        with nothing_left_behind(grace_s=0):
            pass
        assert alive(before.pid)
        before.kill()


def test_who_waits_for_one_of_them_can_be_freed() -> None:
    with subprocess.Popen(["sleep", "300"]) as before, nothing_left_behind(grace_s=0) as kill:
        inside = subprocess.Popen(["sleep", "300"])
        threading.Timer(0.2, kill).start()
        assert inside.wait(10) == -signal.SIGKILL
        assert before.poll() is None
        before.kill()
