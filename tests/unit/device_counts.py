"""What a round asks of a device: copies there and back and kernel launches, by method, temperature and batch size.

`python -m tests.unit.device_counts` prints a table of docs/benchmarks.md; tests/unit/worker/test_device.py has bounds.
Counted on the stand-in device (tests/unit/stand_in_device.py) with the tests' small random pair. Launches inside the
model's `forward` and `logits` depend on its layers and are left out; the others do not depend on the model.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simsd.config import WorkerConfig
from simsd.in_process import LocalClient, generate_all
from simsd.messages.request import DecodeParams, Report, Request
from simsd.messages.round import Proposals, Verdicts, Work
from simsd.messages.worker import Role
from simsd.worker.worker import Worker
from tests.unit.loops import Pair, request, write_pair
from tests.unit.stand_in_device import Counts, StandIn

BATCHES = (1, 8)

METHODS: dict[str, dict[str, Any]] = {
    "vanilla": {"method": "vanilla"},
    "simsd, paired": {"draft_steps": 1},
    "simsd, branches": {"layout": "branches", "draft_steps": 1},
    "simsd, drafts itself": {"drafter": "self"},
    "exact": {"method": "exact", "draft_steps": 1},
    "exact, drafts itself": {"method": "exact", "drafter": "self"},
    "s2d2": {"method": "s2d2"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "simsd, filters": {"draft_steps": 1, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    "simsd, logit_bias and min_tokens": {
        "draft_steps": 1,
        "logit_bias": ((5, 1.0), (7, -2.0)),
        "min_tokens": 16,
        "ignore_eos": False,
    },
    "simsd, logprobs": {"draft_steps": 1, "logprobs": 2},
}


@dataclass(frozen=True, slots=True)
class Case:
    """Requests that are decoded in the same way, `batch` of them together."""

    name: str
    params: dict[str, Any] = field(hash=False)
    temperature: float
    batch: int

    def __str__(self) -> str:
        return f"{self.name}, T = {self.temperature:g}, batch {self.batch}"

    def requests(self) -> list[Request]:
        params = dict(self.params)
        logprobs = params.pop("logprobs", None)
        made = []
        for i in range(self.batch):
            settings = {"max_tokens": 16, "ignore_eos": True, "temperature": self.temperature, "seed": i} | params
            prompt = request(f"{self} {i}", 9 + 5 * i).prompt_ids
            made.append(Request(f"{self} {i}", prompt, DecodeParams(**settings), Report(logprobs=logprobs)))
        return made


def cases() -> list[Case]:
    """Every method at both temperatures, and options that add work of their own, for one request and for eight."""
    found = [(name, params, temperature) for name, params in METHODS.items() for temperature in (0.0, 1.0)]
    found += [(name, params, 1.0) for name, params in OPTIONS.items()]
    return [Case(*each, batch) for each in found for batch in BATCHES]


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """Of one round: the draft's part, zeros where it took none, and the target's."""

    draft: Counts
    target: Counts

    @property
    def outside(self) -> int:
        return self.draft.outside + self.target.outside

    @property
    def copies(self) -> int:
        return sum(part.to_device + part.to_host for part in (self.draft, self.target))


class _CountedDraft(LocalClient):
    """`last` has the counts of the last call, until the target takes them."""

    def __init__(self, worker: Worker, device: StandIn) -> None:
        super().__init__(worker)
        self.device, self.last = device, Counts()

    def propose(self, batch: list[Work]) -> Proposals:
        with self.device.counting() as self.last:
            return super().propose(batch)


class _CountedTarget(LocalClient):
    """`rounds` has the works of each call with the counts of the round."""

    def __init__(self, worker: Worker, device: StandIn, draft: _CountedDraft) -> None:
        super().__init__(worker)
        self.device, self.draft = device, draft
        self.rounds: list[tuple[list[Work], RoundCounts]] = []

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        with self.device.counting() as counts:
            verdicts = await super().verify(batch, proposals)
        self.rounds.append((batch, RoundCounts(self.draft.last, counts)))
        self.draft.last = Counts()
        return verdicts


def worker_on(device: StandIn, pair: Pair, role: Role, **settings: Any) -> Worker:
    """As `Pair.worker`, but on the device, and in float32 too."""
    model = pair.target if role == "target" else pair.draft
    given = {"kv_tokens": 2048, "threads": 1, "dtype": "float32"} | settings
    return Worker(WorkerConfig(role=role, model=str(model), device=device.name, **given))


class PairOnDevice:
    """Both workers of a pair on the stand-in device; launches inside their models are told from those outside."""

    def __init__(self, pair: Pair, device: StandIn) -> None:
        self.pair, self.device = pair, device
        self.target, self.draft = (worker_on(device, pair, role) for role in ("target", "draft"))
        for worker in (self.target, self.draft):
            device.watch(worker.model)

    def rounds(self, case: Case) -> list[RoundCounts]:
        """The steady rounds of a case: all of its requests take part, and none is still at its prompt."""
        draft = _CountedDraft(self.draft, self.device)
        target = _CountedTarget(self.target, self.device, draft)
        generate_all(self.pair.loop(target, draft, max_running=case.batch), case.requests())
        steady = [
            counts
            for works, counts in target.rounds
            if len(works) == case.batch and all(work.block and work.start for work in works)
        ]
        if not steady:
            raise RuntimeError(f"{case}: no steady round")
        return steady


def worst(rounds: list[RoundCounts]) -> RoundCounts:
    """The one with the most launches outside the models, of these the one with the most copies."""
    return max(rounds, key=lambda each: (each.outside, each.copies))


def counts_table(measured: Iterable[tuple[Case, RoundCounts]]) -> str:
    """In Markdown: copies to the device and back, and launches outside the models, all forwards of a round together."""
    lines = [
        "| method | T | batch | draft forwards | to | back | launches | target forwards | to | back | launches |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for case, counts in measured:
        row: list[Any] = [case.name, f"{case.temperature:g}", case.batch]
        for part in (counts.draft, counts.target):
            row += [part.forwards, part.to_device, part.to_host, part.outside]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, StandIn() as device:
        workers = PairOnDevice(write_pair(Path(directory)), device)
        print(counts_table([(case, worst(workers.rounds(case))) for case in cases()]))


if __name__ == "__main__":
    main()
