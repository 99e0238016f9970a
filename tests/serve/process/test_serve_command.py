"""`simsd serve` as a user runs it: errors in one line, ready, and nothing left when it stops."""

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from deployments.processes import descendants
from simsd.models.files import resolve_model
from simsd.worker.ports import free_port
from simsd_client import SimSDClient
from tests.serve.cluster import alive, pids_of, wait_until
from tests.serve.command import SIMSD, STOPPED_WITHIN_S, Command, one_line, refused, started


def test_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run([*SIMSD, "--port", str(port)], capture_output=True, text=True, timeout=120)
        assert f"127.0.0.1:{port}" in one_line(done.returncode, done.stdout, done.stderr)
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


@pytest.mark.slow
def test_sigterm_while_it_starts(short_tmp: Path) -> None:
    port = free_port()
    with started(port, short_tmp / "t") as process:
        wait_until(lambda: bool(descendants(process.pid) & set(pids_of("ray::ServeController"))), 240, 0.2)
        family = descendants(process.pid)
        process.terminate()
        process.wait(STOPPED_WITHIN_S)
        assert not any(alive(pid) for pid in family)
        assert not list((short_tmp / "t").glob("simsd-*"))


def test_it_answers(command: Command) -> None:
    with SimSDClient(command.grpc, timeout_s=60) as client:
        question = [{"role": "user", "content": "What is the capital of France?"}]
        assert "Paris" in client.generate(question, max_tokens=16).text
    answer = subprocess.run(command.curl, shell=True, capture_output=True, text=True, timeout=60)
    assert "Paris" in json.loads(answer.stdout)["choices"][0]["message"]["content"]


def test_ctrl_c_leaves_nothing(command: Command) -> None:
    family = descendants(command.process.pid)
    assert len(family) > 8
    os.killpg(command.process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    assert command.process.wait(STOPPED_WITHIN_S) == 0
    assert not any(alive(pid) for pid in family)
    assert not list(command.directory.glob("simsd-*"))
