"""A server to measure, in processes of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from simsd.bench.pair import PairSpec
from simsd.errors import ConfigError
from simsd.ports import free_port


@contextmanager
def serving(spec: PairSpec, block_size: int, max_running: int) -> Iterator[str]:
    """`simsd serve` on a free port while the context is open; yields its URL. Without a prefix cache, as in process."""
    if spec.synthetic:
        raise ConfigError("a server has no random_weights or synthetic_acceptance; they are for decoding in process")
    options = {
        "port": free_port(),
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
                    yield found.group(1)
                    break
            else:
                raise ConfigError("simsd serve ended before it was ready; its messages are above")
        finally:
            server.terminate()
            server.wait(timeout=60)
