"""A small random pair, requests of every kind and the loop over them: what the tests of the loop share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from simsd.config import LoopConfig, WorkerConfig
from simsd.in_process import Completion, LocalClient, generate_all
from simsd.loop.loop import Loop, Replace
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import Proposals, Verdicts, Work
from simsd.messages.worker import Role
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.worker import Worker
from tests.unit.checkpoints import Shape, write_checkpoint
from tests.unit.toy_tokenizer import MASK_ID

Answer = tuple[list[int], str, str]
SHAPE = Shape(hidden_size=32, heads=2, kv_heads=1, intermediate_size=48)


@dataclass
class Pair:
    """A target and a draft that mostly agrees with it, as checkpoints."""

    target: Path
    draft: Path

    def worker(self, role: Role, **settings: Any) -> Worker:
        model = self.target if role == "target" else self.draft
        given = {"kv_tokens": 2048, "threads": 1} | settings
        return Worker(WorkerConfig(role=role, model=str(model), device="cpu", **given))

    def loop(self, target: Any, draft: Any, replace: Replace | None = None, **settings: Any) -> Loop:
        """Of workers or clients."""
        clients = [LocalClient(each) if isinstance(each, Worker) else each for each in (target, draft)]
        return Loop(*clients, Tokenizer.load(self.target), LoopConfig(**settings), replace)


def request(name: str, prompt: int, max_tokens: int = 22, **params: Any) -> Request:
    """A prompt of so many random tokens; the answer always has max_tokens."""
    ids = Random(f"{name} {prompt}").choices([i for i in range(320) if i != MASK_ID], k=prompt)
    return Request(name, ids, DecodeParams(max_tokens=max_tokens, ignore_eos=True, **params))


def mixed_requests() -> list[Request]:
    """Every method, several lengths (mod 4: 2, 3, 1, 0, 1) and depths, greedy and sampled."""
    return [
        request("vanilla", 150, method="vanilla", temperature=1.0, seed=1),
        request("simsd", 7, temperature=1.0, seed=2, top_k=40, lookahead=1),
        request("exact", 61, method="exact", temperature=1.0, seed=3, remasking="dynamic", threshold=0.3, lookahead=2),
        request("greedy", 100, gamma=3, layout="branches"),
        request("paper", 33, temperature=0.8, seed=4, fallback="target", gamma=3, draft_steps=2),
    ]


def answers(completions: list[Completion]) -> list[Answer]:
    return [(c.token_ids, c.text, c.finish_reason) for c in completions]


def one_by_one(loop: Loop, requests: list[Request]) -> list[Completion]:
    return [generate_all(loop, [each])[0] for each in requests]


def write_pair(directory: Path) -> Pair:
    target = write_checkpoint(directory / "target", SHAPE, seed=1)
    return Pair(target, write_checkpoint(directory / "draft", SHAPE, seed=1, jitter=0.08))


def answers_alone(pair: Pair) -> list[Answer]:
    """The answers of `mixed_requests`, one after the other on fresh workers without a prefix cache."""
    loop = pair.loop(pair.worker("target", prefix_cache=False), pair.worker("draft", prefix_cache=False))
    completions = one_by_one(loop, mixed_requests())
    assert all(len(c.token_ids) == 22 for c in completions)
    return answers(completions)


class Recorder(LocalClient):
    """Remembers who was verified together."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.rounds: list[set[str]] = []

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        self.rounds.append({work.seq_id for work in batch})
        return await super().verify(batch, proposals)


def started(rounds: list[set[str]]) -> list[str]:
    """Sequences in the order of their first round."""
    order: list[str] = []
    for batch in rounds:
        order += sorted(batch - set(order))
    return order


async def settled(condition: Callable[[], bool]) -> None:
    """Wait for the loop to get there by itself."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the loop under test gives no event for it)
            await asyncio.sleep(0)
