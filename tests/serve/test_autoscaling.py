"""Pairs come with the load and go with it, and nobody's request notices."""

import concurrent.futures
import os
import time
from typing import Any

import httpx
import pytest
from ray import serve

from deployments.app import build_app
from tests.serve.cluster import pids_of, wait_until
from tests.serve.conftest import Server

NAME = "scaled"
REQUESTS = 12


def replicas() -> dict[str, int]:
    """Running replicas of each deployment."""
    states = serve.status().applications[NAME].deployments
    return {name: state.replica_states.get("RUNNING", 0) for name, state in states.items()}


def ask(server: Server, seed: int) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": "Explain every step of adding two numbers."}],
        "temperature": 1.0,
        "seed": seed % 4,
        "max_tokens": 300,
        "ignore_eos": True,
    }
    return httpx.post(f"{server.url}/{NAME}/v1/chat/completions", json=body, timeout=300).raise_for_status().json()


@pytest.mark.skipif("SIMSD_TEST_SCALING" not in os.environ, reason="takes minutes; set SIMSD_TEST_SCALING=1")
def test_whole_pairs_follow_the_load(server: Server) -> None:
    scaling = {"max_pairs": 2, "max_running": 2, "upscale_delay_s": 1.0, "downscale_delay_s": 3.0}
    before = set(pids_of("ray::Engine"))
    serve.run(build_app(server.args.model_copy(update=scaling)), name=NAME, route_prefix=f"/{NAME}")
    pair = {"Coordinator": 1, "DraftServer": 1, "TargetServer": 1, "Ingress": 1}
    try:
        assert replicas() == pair
        with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
            began = time.monotonic()
            answers = [pool.submit(ask, server, seed) for seed in range(REQUESTS)]
            two = {name: 1 if name == "Ingress" else 2 for name in pair}
            wait_until(lambda: replicas() == two, 90, 0.2)
            print(f"added capacity after {time.monotonic() - began:.1f} s")
            assert not all(answer.done() for answer in answers), "the load ended before the pair was there"
            texts = [answer.result()["choices"][0]["message"]["content"] for answer in answers]
        assert all(texts[seed] == texts[seed % 4] for seed in range(REQUESTS))
        wait_until(lambda: replicas() == pair, 90, 0.2)
        assert ask(server, 1)["choices"][0]["message"]["content"] == texts[1]
    finally:
        serve.delete(NAME)
    wait_until(lambda: set(pids_of("ray::Engine")) <= before, 20)
