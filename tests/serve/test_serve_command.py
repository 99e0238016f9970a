"""`simsd serve` as a user runs it: errors in one line, ready, and nothing left when it stops."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from simsd.checkpoint import resolve_model
from simsd.config import SHIPPED
from tests.serve.cluster import alive, wait_until
from tests.serve.conftest import free_port

SIMSD = [sys.executable, "-m", "simsd.cli.main", "serve"]
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


def test_start_up_errors(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(resolve_model(SHIPPED, "draft"), other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"block_size": 16}))
    message = refused("--port", str(free_port()), "--target", SHIPPED, "--draft", str(other))
    assert str(other) in message
    assert "16" in message
    assert "max_running" in refused("--port", str(free_port()), "--max-running", "none-at-all")


def descendants(root: int) -> set[int]:
    """The process and all below it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def start(port: int, temporary: Path) -> "subprocess.Popen[str]":
    command = [*SIMSD, "--port", str(port), "--target", SHIPPED, "--draft", SHIPPED]
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def test_ready_answer_ctrl_c(short_tmp: Path) -> None:
    port = free_port()
    process = start(port, short_tmp / "t")
    assert process.stdout is not None
    began = time.monotonic()
    try:
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n"
        assert time.monotonic() - began < 60
        curl = process.stdout.readline()
        answer = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=60)
        assert "Paris" in json.loads(answer.stdout)["choices"][0]["message"]["content"]
        family = descendants(process.pid)
        assert len(family) > 8
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        assert process.wait(STOPPED_WITHIN_S) == 0
        wait_until(lambda: not any(alive(pid) for pid in family), 5)
        assert list((short_tmp / "t").iterdir()) == []
    finally:
        process.kill()


def test_sigterm_while_it_starts(short_tmp: Path) -> None:
    port = free_port()
    process = start(port, short_tmp / "t")
    try:
        wait_until(lambda: len(descendants(process.pid)) > 6, 60)
        family = descendants(process.pid)
        process.terminate()
        process.wait(STOPPED_WITHIN_S + 10)
        wait_until(lambda: not any(alive(pid) for pid in family), 10)
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
    finally:
        process.kill()
