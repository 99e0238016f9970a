"""`simsd serve` as a user runs it: errors in one line, ready, and nothing left when it stops."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from deployments.processes import descendants
from simsd.checkpoint import resolve_model
from simsd_client import SimSDClient
from tests.serve.cluster import alive, cpu_s, pids_of, wait_until
from tests.serve.conftest import free_port

SIMSD = [sys.executable, "-m", "simsd.cli.main", "serve"]
READY_WITHIN_CPU_S = 90.0
"""The promise is ready in 60 s on two idle cores. Tests may run beside something else, so we count the work, not the
time: what takes 90 s of it is done in 45 s there, which leaves 15 s for waits."""
STOPPED_WITHIN_S = 10.0


def refused(*options: str) -> str:
    """The one line that the command ends with instead of starting."""
    done = subprocess.run([*SIMSD, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2), done
    assert done.stdout == ""
    line = done.stderr.strip()
    assert "\n" not in line
    assert "Traceback" not in line
    return line


def test_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused("--port", str(port))
        message = refused("--port", str(free_port()), "--grpc-port", str(port))
        assert f"0.0.0.0:{port}; choose another --grpc-port" in message


def test_start_up_errors(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(resolve_model("shipped", "draft"), other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"block_size": 16}))
    message = refused("--port", str(free_port()), "--target", "shipped", "--draft", str(other))
    assert str(other) in message
    assert "16" in message
    assert "max_running" in refused("--port", str(free_port()), "--max-running", "none-at-all")


@contextlib.contextmanager
def started(port: int, temporary: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in a session of its own, with a temporary directory of its own."""
    temporary.mkdir()
    with subprocess.Popen(
        [*SIMSD, "--port", str(port), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ready_answer_ctrl_c(short_tmp: Path) -> None:
    port, grpc_port = free_port(), free_port()
    began = time.monotonic()
    with started(port, short_tmp / "t", "--grpc-port", str(grpc_port)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n"
        spent = sum(map(cpu_s, descendants(process.pid) | {process.pid}))
        print(f"ready after {time.monotonic() - began:.1f} s and {spent:.1f} s of CPU")
        assert spent < READY_WITHIN_CPU_S
        assert process.stdout.readline() == f"ready grpc 127.0.0.1:{grpc_port}\n"
        with SimSDClient(f"127.0.0.1:{grpc_port}", timeout_s=60) as client:
            question = [{"role": "user", "content": "What is the capital of France?"}]
            assert "Paris" in client.generate(question, max_tokens=16).text
        curl = process.stdout.readline()
        answer = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=60)
        assert "Paris" in json.loads(answer.stdout)["choices"][0]["message"]["content"]
        family = descendants(process.pid)
        assert len(family) > 8
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        assert process.wait(STOPPED_WITHIN_S) == 0
        assert not any(alive(pid) for pid in family)
        assert not list((short_tmp / "t").glob("simsd-*"))


def test_sigterm_while_it_starts(short_tmp: Path) -> None:
    port = free_port()
    with started(port, short_tmp / "t") as process:
        wait_until(lambda: bool(descendants(process.pid) & set(pids_of("ray::ServeController"))), 90, 0.2)
        family = descendants(process.pid)
        process.terminate()
        process.wait(STOPPED_WITHIN_S)
        assert not any(alive(pid) for pid in family)
        assert not list((short_tmp / "t").glob("simsd-*"))
