"""New weights under load: every answer is of the old ones or of the new ones, and none is lost."""

import concurrent.futures
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from ray import serve
from safetensors.torch import load_file, save_file

from deployments.app import build_app
from simsd.config import SHIPPED
from simsd.models.files import resolve_model
from tests.serve.cluster import alive, engines, keep_asking, pids_of, wait_until
from tests.serve.server.conftest import Server

NAME = "updated"
LONG, LONG_TOKENS = 4, 1600
"""Streams that are under way when the weights change, and still are when new engines have long been there."""
SHORT = 3


def ask(server: Server, seed: int, **fields: Any) -> str:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Explain every step of adding {seed} and seven."}],
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": 24,
        "ignore_eos": True,
    }
    answer = httpx.post(f"{server.url}/{NAME}/v1/chat/completions", json=body | fields, timeout=300).raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def ask_long(server: Server, seed: int) -> str:
    return ask(server, seed, max_tokens=LONG_TOKENS, simsd={"method": "vanilla"})


def other_weights(directory: Path) -> Path:
    """The shipped target with noise on it."""
    shutil.copytree(resolve_model(SHIPPED, "target"), directory)
    generator = torch.Generator().manual_seed(0)
    path = directory / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    for tensor in weights.values():
        tensor += (torch.randn(tensor.shape, generator=generator) * tensor.float().std() * 0.2).to(tensor.dtype)
    save_file(weights, path, metadata={"format": "pt"})
    return directory


@pytest.mark.slow
def test_new_weights_under_load(server: Server, tmp_path: Path) -> None:
    before = set(pids_of("ray::Engine"))
    serve.run(build_app(server.args), name=NAME, route_prefix=f"/{NAME}")
    old_target = engines(NAME)["target"].pid
    changed = build_app(server.args.model_copy(update={"target": str(other_weights(tmp_path / "target"))}))
    over = threading.Event()

    try:
        old = [ask(server, seed) for seed in range(SHORT)]
        with concurrent.futures.ThreadPoolExecutor(LONG + SHORT + 1) as pool:
            old_long = list(pool.map(lambda seed: ask_long(server, seed), range(LONG)))
            longs = [pool.submit(ask_long, server, seed) for seed in range(LONG)]
            shorts = [pool.submit(keep_asking, partial(ask, server, seed), over) for seed in range(SHORT)]
            # Serve calls it done only when nothing of the old version is left.
            update = pool.submit(serve.run, changed, name=NAME, route_prefix=f"/{NAME}")
            try:
                print(f"new weights after {wait_until(lambda: ask(server, 0) != old[0], 240):.1f} s")
                assert alive(old_target)
                assert not any(answer.done() for answer in longs), "they ended before the new weights were there"
                new = [ask(server, seed) for seed in range(SHORT)]
                assert [answer.result() for answer in longs] == old_long
                update.result(timeout=60)
                wait_until(lambda: not alive(old_target), 20)  # its replica is gone, the engine follows
            finally:
                over.set()
            for seed, texts in enumerate(answer.result() for answer in shorts):
                changes = texts.index(new[seed])
                assert new[seed] != old[seed]
                assert texts == [old[seed]] * changes + [new[seed]] * (len(texts) - changes)
    finally:
        serve.delete(NAME)
    wait_until(lambda: set(pids_of("ray::Engine")) <= before, 20)
