"""Times rounds, and records what each revealed and which forwards it took.

A window is the time in which a given number of sequences all decode: from the first round in which none of them is
prefilled until one is done. So it contains neither prefill nor rounds of a smaller batch.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import cycle, islice
from typing import cast

from torch import Tensor

from simsd.eval.datasets import Item
from simsd.forward.runner import Batch, EagerRunner
from simsd.in_process import LocalClient, collect
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import Verdicts
from simsd.worker.worker import Worker
from simsd_bench.measure.decode import untimed_s


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much `measure.speed` runs.

    Answers have `tokens` tokens, or `engine_tokens` with engines on Ray. `alone` prompts are decoded one at a time, and
    everything is repeated `repeats` times. `warm_up` prompts are decoded before the measurement in the baseline, and
    where answers end at EOS.
    """

    alone: int = 8
    tokens: int = 24
    engine_tokens: int = 64
    repeats: int = 5
    batches: tuple[int, ...] = (1, 16)
    concurrencies: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    contexts: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    warm_up: int = 3


QUICK = Sizes(
    alone=1, tokens=12, engine_tokens=16, repeats=1, batches=(1, 4), concurrencies=(1, 4), contexts=(64, 256), warm_up=1
)


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward of `worker`'s model: the number of its rows, and of those whose logits were wanted."""

    worker: Worker
    rows: int
    wanted: int


@dataclass(slots=True)
class Window:
    """Sums over the rounds of a window; `revealed`, `accepted` and `recovered` count tokens."""

    seconds: float = 0.0
    rounds: int = 0
    revealed: int = 0
    accepted: int = 0
    recovered: int = 0
    target_forwards: int = 0
    target_s: float = 0.0
    draft_forwards: int = 0
    draft_s: float = 0.0
    forwards: list[Forward] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.revealed / self.seconds

    @property
    def acceptance(self) -> float | None:
        """The share of accepted tokens among the drafted tokens that were tested."""
        judged = self.accepted + self.recovered
        return self.accepted / judged if judged else None

    @classmethod
    def sum(cls, windows: "Sequence[Window]") -> "Window":
        total = cls()
        for each in fields(cls):
            for window in windows:
                setattr(total, each.name, getattr(total, each.name) + getattr(window, each.name))
        return total


class _Noting:
    """A worker's runner that records its forwards."""

    def __init__(self, worker: Worker, forwards: list[Forward]) -> None:
        self.worker, self.runner, self.forwards = worker, worker.runner, forwards

    def run(self, batch: Batch) -> Tensor:
        rows = [rows for _, rows in batch]
        self.forwards.append(Forward(self.worker, sum(map(len, rows)), sum(len(each.wants) for each in rows)))
        return self.runner.run(batch)


class _Stopwatch:
    """Fills a window, round by round, while `count` sequences decode."""

    def __init__(self, loop: Loop, count: int) -> None:
        self.loop, self.count = loop, count
        self.window, self.forwards = Window(), list[Forward]()
        self.began, self.untimed_s = 0.0, untimed_s(loop)

    def see(self, began: float, verdicts: Verdicts) -> None:
        """Take in a round; this is the loop's `on_round`."""
        forwards, self.forwards[:] = list(self.forwards), []
        running = self.loop.running.values()
        if len(running) < self.count or any(sequence.prefilling for sequence in running):
            self.untimed_s = untimed_s(self.loop)
            return
        window = self.window
        self.began = self.began or began
        window.seconds = time.perf_counter() - self.began - (untimed_s(self.loop) - self.untimed_s)
        window.rounds += 1
        window.revealed += sum(verdict.revealed for verdict in verdicts.items.values())
        window.accepted += sum(verdict.accepted for verdict in verdicts.items.values())
        window.recovered += sum(verdict.recovered for verdict in verdicts.items.values())
        window.target_forwards += verdicts.target_forwards
        window.target_s += verdicts.target_s
        window.draft_forwards += verdicts.draft_forwards
        window.draft_s += verdicts.draft_s
        window.forwards += forwards


def workers(loop: Loop) -> list[Worker]:
    """Return the workers of target and draft that are in this process."""
    found = [client.worker for client in (loop.target, loop.draft) if isinstance(client, LocalClient)]
    return [worker for worker in found if isinstance(worker, Worker)]


def prompts_of(loop: Loop, asked: Sequence[Item], count: int) -> list[list[int]]:
    """Return the token ids of `count` prompts; if there are fewer in `asked`, they repeat."""
    return [loop.tokenizer.encode_messages(item.messages, tools=item.tools) for item in islice(cycle(asked), count)]


def decode_together(loop: Loop, prompts: Sequence[list[int]], params: DecodeParams) -> Window:
    """Decode all prompts together until the first is done, and return the window."""
    watch = _Stopwatch(loop, len(prompts))
    local = workers(loop)
    runners = [worker.runner for worker in local]
    loop.on_round = watch.see
    for worker in local:
        worker.runner = cast(EagerRunner, _Noting(worker, watch.forwards))
    try:
        asyncio.run(_until_one_is_done(loop, [Request(str(i), ids, params) for i, ids in enumerate(prompts)]))
    finally:
        loop.on_round = None
        for worker, runner in zip(local, runners, strict=True):
            worker.runner = runner
    return watch.window


async def _until_one_is_done(loop: Loop, requests: list[Request]) -> None:
    tasks = [asyncio.create_task(loop.run()), *(asyncio.create_task(collect(loop, request)) for request in requests)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
