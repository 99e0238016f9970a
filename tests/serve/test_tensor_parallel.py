"""A target over two engine processes, in the bundles of one placement group, beside the ordinary application."""

import httpx
from ray import serve

from deployments.app import build_app
from tests.serve.cluster import engines, pids_of, wait_until
from tests.serve.conftest import Server

NAME = "split"


def test_a_split_target_gives_the_same_text(server: Server) -> None:
    body = {
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 1.0,
        "seed": 3,
        "max_tokens": 24,
    }
    processes = set(pids_of("ray::"))
    args = server.args.model_copy(update={"tensor_parallel": 2, "served_model_name": NAME})
    serve.run(build_app(args), name=NAME, route_prefix=f"/{NAME}")
    try:
        for method in ("vanilla", "simsd", "exact"):
            asked = body | {"simsd": {"method": method}}
            split, whole = (
                httpx.post(f"{server.url}{prefix}/v1/chat/completions", json=asked, timeout=60).json()
                for prefix in (f"/{NAME}", "")
            )
            assert split["model"] == NAME
            assert split["choices"][0]["message"] == whole["choices"][0]["message"]
        assert len(pids_of("ray::Follower")) == 1
        assert {state.pages.held for state in engines(NAME).values()} == {0}
    finally:
        serve.delete(NAME)
    wait_until(lambda: not set(pids_of("ray::Follower")) - processes, 20)
