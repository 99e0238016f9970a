"""One Ray and one application for all tests of this folder that ask for it."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from deployments.args import ServeArgs
from simsd.config import SHIPPED
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.ports import free_port
from tests.serve.command import Command, running

TIMEOUT_S = 60.0
FORWARD_TIMEOUT_S = 10.0
AUTOSCALING_INTERVALS = (
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses a cluster is marked `serve`.

    This folder's tests have limits in seconds, which a busy machine may miss: a failure counts if it repeats. But what
    was counted of one `command` is not counted again.
    """
    for item in items:
        if {"server", "command"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.serve)
        if item.path.parent == Path(__file__).parent and "command" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=2))


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

    args = ServeArgs(target=SHIPPED, draft=SHIPPED, served_model_name="tiny", forward_timeout_s=FORWARD_TIMEOUT_S)
    port, grpc_port = free_port(), free_port()
    os.environ |= dict.fromkeys(AUTOSCALING_INTERVALS, "0.5")
    with local_ray(3 * args.engines):  # some tests start a second application beside this one
        deploy(build_app(args), "127.0.0.1", port, grpc_port=grpc_port)
        yield Server(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", args)


@pytest.fixture(scope="session")
def command() -> Iterator[Command]:
    """`simsd serve` in a process of its own; its last test stops it."""
    with tempfile.TemporaryDirectory(prefix="s-") as directory, running(Path(directory)) as command:
        yield command


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
