"""A start on a slow or busy machine: limits are longer than Ray's, a failed start is repeated, waiting is told."""

import http.server
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deployments.local import ENVIRONMENT, START_LIMIT_S, StartError, local_ray, wait_for_answer
from deployments.processes import descendants
from simsd.cli.serve import still
from simsd.worker.ports import free_port
from tests.serve.cluster import wait_until
from tests.serve.command import STDERR, started

RAYS_OWN_LIMIT_S = 30.0
"""How long `ray.init` waits by itself for the port of the GCS, and then for the node."""
LIMITS = ("RAY_raylet_start_wait_time_s", "RAY_gcs_server_port_wait_time_s")


class Ray:
    """Stands in for the module: `init` fails the first so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []

    def init(self, **options: Any) -> None:
        self.calls.append("init")
        if self.calls.count("init") <= self.failures:
            raise Exception("The current node timed out during startup.")

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `local_ray` sets is gone after the test, but for what was there before."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, os.environ.get(name, ""))
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("environment")
def test_a_start_that_fails_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ray = Ray(failures=1)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with local_ray(2):
        assert ray.calls == ["init", "shutdown", "init"]
        assert {os.environ[name] for name in LIMITS} == {str(START_LIMIT_S)}
    assert "trying once more: The current node timed out" in caplog.text


@pytest.mark.usefixtures("environment")
def test_a_second_failure_is_the_end_and_names_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(failures=2)
    monkeypatch.setitem(sys.modules, "ray", ray)
    says = r"The current node timed out during startup. \(logs: (.*)\)"
    with pytest.raises(StartError, match=says) as refused, local_ray(2):
        pytest.fail("it has not started")
    assert ray.calls == ["init", "shutdown", "init", "shutdown", "shutdown"]
    logs = Path(str(refused.value).split("logs: ")[1].removesuffix(")"))
    assert logs.is_dir()
    logs.rmdir()


@pytest.mark.usefixtures("environment")
def test_limits_that_a_user_has_set_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMITS[0], "7")
    monkeypatch.setitem(sys.modules, "ray", Ray(failures=0))
    with local_ray(2):
        assert os.environ[LIMITS[0]] == "7"


def test_waiting_is_told_while_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    with still("waiting for Ray to start", every_s=0.05):
        time.sleep(0.2)
    told = capsys.readouterr().err.splitlines()
    assert len(told) >= 2
    assert set(told) == {"simsd: still waiting for Ray to start, 0 s"}
    with still("waiting for nothing", every_s=60):
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


class Late(http.server.BaseHTTPRequestHandler):
    """Says once that it is not ready, then that it is."""

    statuses: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self.statuses.append(200 if self.statuses else 503)
        self.send_response(self.statuses[-1])
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def test_a_server_that_is_late_is_waited_for() -> None:
    """First nothing listens, then the answer is an error, then the server is healthy."""
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for_answer, "127.0.0.1", port, 0, 30.0)
        time.sleep(0.3)
        assert not waiting.done()
        with http.server.HTTPServer(("127.0.0.1", port), Late) as server:
            server.handle_request()
            server.handle_request()
            waiting.result(10)
    assert Late.statuses == [503, 200]


def test_a_server_that_never_answers_is_an_error() -> None:
    port = free_port()
    with pytest.raises(StartError, match=f"no answer from http://127.0.0.1:{port}/health within 0.1 s"):
        wait_for_answer("127.0.0.1", port, 0, timeout_s=0.1)


def executable(pid: int) -> str:
    """The file that the process runs; empty if it has gone."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


@pytest.mark.slow
def test_a_node_that_takes_longer_than_rays_own_limit(short_tmp: Path) -> None:
    """Ray's node process is stopped as soon as it is there, for longer than Ray would wait for it."""
    port = free_port()
    with started(port, short_tmp / "t") as process:
        nodes: list[int] = []

        def found() -> bool:
            nodes.extend(pid for pid in descendants(process.pid) if executable(pid) == "raylet")
            return bool(nodes)

        wait_until(found, 240, 0.02)
        os.kill(nodes[0], signal.SIGSTOP)
        time.sleep(RAYS_OWN_LIMIT_S + 5)
        os.kill(nodes[0], signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n"
        told = (short_tmp / "t" / STDERR).read_text()
        assert "simsd: still waiting for Ray to start, 30 s\n" in told
        assert "trying once more" not in told
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
