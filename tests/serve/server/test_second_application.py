"""A second application beside the ordinary one, from Serve's own config schema, as `serve deploy` and RayService do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from ray import serve
from ray.serve._private.api import _get_global_client
from ray.serve.schema import ServeDeploySchema

from tests.serve.cluster import engines, pids_of, wait_until
from tests.serve.server.conftest import Server

NAME, MISSPELT = "second", "misspelt"
FRANCE = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}


@contextmanager
def deployed(server: Server, settings: dict[str, str]) -> Iterator[str]:
    """The URL of an application with these settings, as strings of a config file, beside one that cannot start.

    Its engine processes must end with it.
    """
    pair = {"target": server.args.target, "draft": server.args.draft, "served_model_name": NAME}
    applications: list[dict[str, Any]] = [
        {"name": name, "route_prefix": f"/{name}", "import_path": "deployments.app:build_app", "args": args}
        for name, args in ((NAME, pair | settings), (MISSPELT, {"gama": 1}))
    ]
    processes = {title: set(pids_of(title)) for title in ("ray::Engine", "ray::Follower")}
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": applications}))
    try:
        wait_until(lambda: serve.status().applications[NAME].status == "RUNNING", 180, 0.2)
        yield f"{server.url}/{NAME}"
    finally:
        serve.delete(NAME)
        serve.delete(MISSPELT)
    for title, before in processes.items():
        wait_until(lambda title=title, before=before: set(pids_of(title)) <= before, 20)


@pytest.fixture(scope="module")
def second(server: Server) -> Iterator[str]:
    """A target over two engine processes, in the bundles of one placement group."""
    with deployed(server, {"gamma": "2", "tensor_parallel": "2"}) as url:
        yield url


def test_the_config_deploys_the_application(second: str) -> None:
    answer = httpx.post(f"{second}/v1/chat/completions", json=FRANCE, timeout=60).json()
    assert answer["model"] == NAME
    assert "Paris" in answer["choices"][0]["message"]["content"]


def test_a_misspelt_setting_is_told_beside_it(second: str) -> None:
    wait_until(lambda: serve.status().applications[MISSPELT].status == "DEPLOY_FAILED", 60, 0.2)
    assert "did you mean 'gamma'" in serve.status().applications[MISSPELT].message


@pytest.mark.parametrize("method", ["vanilla", "simsd", "exact"])
def test_a_split_target_gives_the_same_text(server: Server, second: str, method: str) -> None:
    options = {"method": method, "gamma": 2}
    asked = FRANCE | {"temperature": 1.0, "seed": 3, "max_tokens": 24, "simsd": options}
    split, whole = (
        httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60).json() for url in (second, server.url)
    )
    assert split["choices"][0]["message"] == whole["choices"][0]["message"]
    assert len(pids_of("ray::Follower")) == 1
    assert {state.pages.held for state in engines(NAME).values()} == {0}


@pytest.mark.slow
def test_who_asks_again_finds_the_pair_that_has_the_prompt(server: Server) -> None:
    long = {"prompt": "What is the capital of France? " * 12, "max_tokens": 4}
    with deployed(server, {"pairs": "2"}) as url:
        usages = [httpx.post(f"{url}/v1/completions", json=long, timeout=60).json()["usage"] for _ in range(8)]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[0] == 0
    assert min(cached[1:]) >= 48  # by two random choices one of them would miss, 127 times in 128
