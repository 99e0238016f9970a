"""Pairs come with the load and go with it, and nobody's request notices."""

import concurrent.futures
import threading
import time
from functools import partial

import httpx
import pytest
from ray import serve

from deployments.app import build_app
from tests.serve.cluster import engines, keep_asking, kill, pids_of, wait_until
from tests.serve.server.conftest import Server

NAME = "scaled"
CLIENTS = 12


def replicas() -> dict[str, int]:
    """Running replicas of each deployment."""
    states = serve.status().applications[NAME].deployments
    return {name: state.replica_states.get("RUNNING", 0) for name, state in states.items()}


def ask(server: Server, seed: int) -> str:
    body = {
        "messages": [{"role": "user", "content": "Explain every step of adding two numbers."}],
        "temperature": 1.0,
        "seed": seed % 4,
        "max_tokens": 300,
        "ignore_eos": True,
    }
    answer = httpx.post(f"{server.url}/{NAME}/v1/chat/completions", json=body, timeout=300).raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.slow
def test_whole_pairs_follow_the_load(server: Server) -> None:
    scaling = {"max_pairs": 2, "max_running": 2, "upscale_delay_s": 1.0, "downscale_delay_s": 3.0}
    before = set(pids_of("ray::Engine"))
    serve.run(build_app(server.args.model_copy(update=scaling)), name=NAME, route_prefix=f"/{NAME}")
    pair = {"Coordinator": 1, "DraftServer": 1, "TargetServer": 1, "Ingress": 1}
    first_target = engines(NAME)["target"].pid
    grown = threading.Event()

    try:
        assert replicas() == pair
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            began = time.monotonic()
            # The load must outlast the start of a pair, however fast answers are.
            clients = [pool.submit(keep_asking, partial(ask, server, number), grown) for number in range(CLIENTS)]
            two = {name: 1 if name == "Ingress" else 2 for name in pair}
            try:
                wait_until(lambda: replicas() == two, 90, 0.2)
                print(f"added capacity after {time.monotonic() - began:.1f} s")
                # The older coordinator gets the newest target for it, which is what Serve will stop first.
                kill(first_target)
                wait_until(lambda: replicas() != two, 30, 0.02)
                wait_until(lambda: replicas() == two, 90, 0.2)
            finally:
                grown.set()
            texts = [client.result() for client in clients]
        for number in range(CLIENTS):
            assert set(texts[number]) == {texts[number % 4][0]}
        wait_until(lambda: replicas() == pair, 90, 0.2)
        wait_until(lambda: len(set(pids_of("ray::Engine")) - before) == 2, 60, 0.2)
        assert ask(server, 1) == texts[1][0]
    finally:
        serve.delete(NAME)
    wait_until(lambda: set(pids_of("ray::Engine")) <= before, 20)
