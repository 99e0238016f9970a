"""One Ray and one application for all tests of this folder that ask for it."""

import contextlib
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from deployments.args import ServeArgs
from simsd.checkpoint import resolve_model
from simsd.config import SHIPPED
from simsd.tokenizer import Tokenizer

TIMEOUT_S = 60.0
AUTOSCALING_INTERVALS = (
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the cluster is marked `serve`.

    This folder's tests have limits in seconds, which a busy machine may miss: a failure counts if it repeats.
    """
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.serve)
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.flaky(reruns=2))


def free_port() -> int:
    """A port that was free a moment ago, outside the ranges of Ray's workers and of outgoing connections."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True)
class Server:
    """The running application."""

    url: str
    grpc: str
    args: ServeArgs

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=TIMEOUT_S)

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    from deployments.app import build_app
    from deployments.local import deploy, local_ray

    args = ServeArgs(target=SHIPPED, draft=SHIPPED, served_model_name="tiny")
    port, grpc_port = free_port(), free_port()
    os.environ |= dict.fromkeys(AUTOSCALING_INTERVALS, "0.5")
    with local_ray(3 * args.engines):  # some tests start a second application beside this one
        deploy(build_app(args), "127.0.0.1", port, grpc_port=grpc_port)
        yield Server(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", args)


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model(SHIPPED, "target"))


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A directory with a short name: Ray's sockets live below it, and their paths may have 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="s-") as directory:
        yield Path(directory)
