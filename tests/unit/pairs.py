"""Pairs for tests: the shipped one at any block size, one with a random draft, and batches of requests on them."""

from functools import cache
from pathlib import Path

import torch

from simsd.config import LoopConfig, WorkerConfig
from simsd.eval.families import FAMILIES, Question
from simsd.in_process import Completion, LocalClient, generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd.models.files import resolve_model
from simsd.models.loading import load_model
from simsd.models.model import BlockDiffusionModel
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.worker import Worker


@cache
def worker(role: str, block_size: int, aligned: bool = True) -> Worker:
    torch.set_num_threads(1)
    return Worker(WorkerConfig(role=role, block_size=block_size), aligned=aligned)


def fresh_random_draft(block_size: int) -> Worker:
    """The shipped draft's shape with fresh weights: it agrees with the target by chance only."""

    def load(path: Path, name: str, dtype: torch.dtype, device: str) -> BlockDiffusionModel:
        model = load_model(path, name, dtype, device)
        generator = torch.Generator().manual_seed(7)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
        return model

    return Worker(WorkerConfig(role="draft", block_size=block_size), load=load)


random_draft = cache(fresh_random_draft)
"""The same for all tests, whose prefix cache then holds what they asked."""


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model("shipped", "target"))


def loop_of(block_size: int, draft: Worker | None = None, batch: int = 16, aligned: bool = True) -> Loop:
    target = LocalClient(worker("target", block_size, aligned))
    return Loop(target, LocalClient(draft or worker("draft", block_size)), tokenizer(), LoopConfig(max_running=batch))


def chat(text: str) -> list[int]:
    return tokenizer().encode_messages([{"role": "user", "content": text}])


def heldout(per_family: int, seed: int = 1) -> list[Question]:
    """Questions of four families with short answers, the families taking turns."""
    columns = [FAMILIES[name].questions("heldout", per_family, seed) for name in ("math", "code", "trivia", "choice")]
    return [question for row in zip(*columns, strict=True) for question in row]


def run(loop: Loop, prompts: list[list[int]], params: list[DecodeParams]) -> list[Completion]:
    """All requests through the loop; afterwards the workers hold nothing and their pools are whole."""
    requests = [Request(f"request-{i}", prompt, p) for i, (prompt, p) in enumerate(zip(prompts, params, strict=True))]
    done = generate_all(loop, requests)
    for client in (loop.target, loop.draft):
        assert isinstance(client, LocalClient)
        use = client.worker.page_use()
        assert use.held == use.sequences == 0
    return done
