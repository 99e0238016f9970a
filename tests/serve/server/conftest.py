"""One Ray and one application for all tests of this folder."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import openai
import pytest

from deployments.args import ServeArgs
from simsd.config import SHIPPED
from simsd.worker.ports import free_port

TIMEOUT_S = 60.0
FORWARD_TIMEOUT_S = 10.0
AUTOSCALING_INTERVALS = (
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
)


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


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    from deployments.app import build_app
    from deployments.local import deploy, local_ray

    args = ServeArgs(target=SHIPPED, draft=SHIPPED, served_model_name="tiny", forward_timeout_s=FORWARD_TIMEOUT_S)
    port, grpc_port = free_port(), free_port()
    os.environ |= dict.fromkeys(AUTOSCALING_INTERVALS, "0.5")
    with local_ray(3 * args.engines):  # some tests start a second application beside this one
        deploy(build_app(args), "127.0.0.1", port, grpc_port=grpc_port)
        yield Server(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", args)
