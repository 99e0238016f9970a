"""Starts a server to measure, in processes of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simsd.errors import ConfigError
from simsd.worker.ports import free_port
from simsd_bench.measure.pair import PairSpec
from simsd_bench.processes import processes

PARTS = {
    "Serve's proxy": "proxy",
    "ingress replica": "ingress",
    "coordinator replica": "coordinator",
    "engine": "engines",
}
"""Name of a process -> the part of the server that it belongs to."""
REST = "rest of Ray"


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens. `pid` is its process; None if it was not started here."""

    url: str
    grpc: str | None = None
    pid: int | None = None

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds that each part has taken so far (Linux); zeros if the process is not known."""
        taken = dict.fromkeys([*PARTS.values(), REST], 0.0)
        for process in processes(self.pid) if self.pid else ():
            taken[PARTS.get(process.name, REST)] += process.cpu_s
        return taken


@contextmanager
def serving(spec: PairSpec, block_size: int, max_running: int) -> Iterator[Server]:
    """Run `simsd serve` on free ports while the context is open, without a prefix cache, as in process."""
    if spec.synthetic:
        raise ConfigError("a server has no random_weights or synthetic_acceptance; they are for decoding in process")
    options = {
        "port": free_port(),
        "grpc-port": free_port(),
        "block-size": block_size,
        "target": spec.target,
        "draft": spec.draft,
        "threads": spec.threads,
        "device": spec.device,
        "dtype": spec.dtype,
        "runner": spec.runner,
        "max-running": max_running,
        "prefix-cache": "false",
    }
    command = [sys.executable, "-m", "simsd.cli.main", "serve"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if found := re.match(r"ready (http://\S+)", line):
                    yield Server(found.group(1), f"127.0.0.1:{options['grpc-port']}", server.pid)
                    break
            else:
                raise ConfigError("simsd serve ended before it was ready; its messages are above")
        finally:
            server.terminate()
            server.wait(timeout=60)
