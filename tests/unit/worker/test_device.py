"""A worker on a device of its own: all that belongs there lies there, and the answers are those of the CPU.

The device is the stand-in of tests/unit/stand_in_device.py, which raises where an operation mixes devices.
"""

import asyncio
import dataclasses
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from torch import Tensor, nn

from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Output, Report, Request
from simsd.messages.worker import Role
from tests.unit.device_counts import Case, PairOnDevice, RoundCounts, cases, counts_table, worker_on, worst
from tests.unit.loops import Pair
from tests.unit.records import Group, groups
from tests.unit.stand_in_device import Counts, StandIn, is_stand_in
from tests.unit.toy_tokenizer import MASK_ID

MAX_TO_DEVICE, MAX_TO_HOST, MAX_LAUNCHES = 3, 1, 40
"""Copies for each forward, and launches outside the models for a round with one draft forward."""
MORE_LAUNCHES = {
    "simsd, branches": 44,
    "exact": 60,
    "simsd, filters": 85,
    "simsd, logit_bias and min_tokens": 42,
    "simsd, logprobs": 52,
}
"""Of sampled requests. `exact` draws from the whole vocabulary in draft and target, and filters sort it in both."""


@pytest.fixture
def device() -> Iterator[StandIn]:
    with StandIn() as device:
        yield device


@pytest.fixture(scope="module")
def workers(pair: Pair) -> PairOnDevice:
    device = StandIn()
    with device:
        return PairOnDevice(pair, device)


def tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All that its modules hold: parameters, buffers, and tables that are neither."""
    for name, each in module.named_modules():
        for key, value in [
            *each.named_parameters(recurse=False),
            *each.named_buffers(recurse=False),
            *vars(each).items(),
        ]:
            if isinstance(value, Tensor):
                yield f"{name}.{key}", value


@pytest.mark.parametrize("runner", ["eager", "graph"])
@pytest.mark.parametrize("role", ["draft", "target"])
def test_weights_tables_and_kv_lie_on_the_device(pair: Pair, device: StandIn, role: Role, runner: str) -> None:
    worker = worker_on(device, pair, role, runner=runner)
    held = dict(tensors(worker.model)) | {f"kv.{layer}": kv for layer, kv in enumerate(worker.kv)}
    assert {"model.rope", "lm_head.weight", "kv.1"} <= held.keys() and len(held) > 20
    assert [name for name, tensor in held.items() if not is_stand_in(tensor.device)] == []
    assert is_stand_in(worker.info.device)


def requests_of(group: Group) -> list[Request]:
    """A random prompt for each of the group's settings."""
    made = []
    for i, params in enumerate(group.params):
        ids = Random(i).choices([token for token in range(320) if token != MASK_ID], k=3 + 7 * i % 40)
        report = Report(**group.reports[i % len(group.reports)])
        made.append(Request(f"request {i}", ids, DecodeParams(**{"max_tokens": 16, "seed": i} | params), report))
    return made


def answers(loop: Loop, requests: list[Request]) -> list[Output]:
    """What each request is told, its outputs put together."""

    async def one(request: Request) -> Output:
        whole = Output([], "")
        async for output in loop.generate(request):
            whole.add(output)
            whole.stats = output.stats
        return whole

    async def everything() -> list[Output]:
        rounds = asyncio.create_task(loop.run())
        try:
            return await asyncio.gather(*map(one, requests))
        finally:
            rounds.cancel()

    return asyncio.run(everything())


def same(there: Output, here: Output) -> None:
    """All but times are equal, log-probabilities within rounding: on a CPU the norms are computed otherwise."""
    assert (there.token_ids, there.text, there.events) == (here.token_ids, here.text, here.events)
    assert (there.finish_reason, counters(there)) == (here.finish_reason, counters(here))
    told, expected = (each.prompt_logprobs + each.logprobs for each in (there, here))
    assert [each.logprob for each in told] == pytest.approx([each.logprob for each in expected], abs=1e-3)
    assert [[i for i, _ in each.top] for each in told] == [[i for i, _ in each.top] for each in expected]


def counters(output: Output) -> dict[str, Any]:
    assert output.stats is not None
    return {name: value for name, value in output.stats.to_dict().items() if not name.endswith("_s")}


GROUPS = [group for group in groups() if group.block_size == 4 and group.draft != "process"]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_answers_are_those_of_the_cpu(pair: Pair, device: StandIn, group: Group) -> None:
    """Every method, layout and remasking; greedy, sampled, filtered; biases, `min_tokens`, logprobs of either kind."""
    requests, settings = requests_of(group), {"max_running": group.batch}
    on_device = pair.loop(worker_on(device, pair, "target"), worker_on(device, pair, "draft"), **settings)
    on_cpu = pair.loop(pair.worker("target"), pair.worker("draft"), **settings)
    for there, here in zip(answers(on_device, requests), answers(on_cpu, requests), strict=True):
        same(there, here)


def test_answers_from_preallocated_buffers_are_those_of_the_cpu(pair: Pair, device: StandIn) -> None:
    sampled = next(group for group in GROUPS if group.name.startswith("sampled"))
    requests = requests_of(sampled)[::3]
    target, draft = (worker_on(device, pair, role, runner="graph") for role in ("target", "draft"))
    there = answers(pair.loop(target, draft, max_running=4), requests)
    here = answers(pair.loop(pair.worker("target"), pair.worker("draft"), max_running=4), requests)
    for mine, other in zip(there, here, strict=True):
        same(mine, other)


def test_the_devices_own_dtype(pair: Pair, device: StandIn) -> None:
    """bfloat16 where the device is not a CPU; it holds for weights and KV, and requests are answered."""
    target, draft = (worker_on(device, pair, role, dtype="auto") for role in ("target", "draft"))
    assert target.info.dtype == "bfloat16" == str(target.kv[0].dtype).removeprefix("torch.")
    found = answers(pair.loop(target, draft), requests_of(dataclasses.replace(GROUPS[0], params=GROUPS[0].params[::6])))
    assert all(answer.finish_reason for answer in found)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_round_asks_little_of_the_device(workers: PairOnDevice, case: Case) -> None:
    with workers.device:
        rounds = workers.rounds(case)
    for counts in rounds:
        for part in (counts.draft, counts.target):
            assert part.to_device <= MAX_TO_DEVICE * part.forwards
            assert part.to_host <= MAX_TO_HOST * part.forwards
        limit = MORE_LAUNCHES.get(case.name, MAX_LAUNCHES) if case.temperature else MAX_LAUNCHES
        assert counts.outside <= limit, counts.draft.outside_by_name + counts.target.outside_by_name


def test_counts_of_a_round_are_told_in_a_table() -> None:
    light = RoundCounts(Counts(), Counts(to_device=1, to_host=1, outside=5, inside=90, forwards=1))
    heavy = RoundCounts(Counts(to_device=6, to_host=2, outside=12, inside=80, forwards=2), light.target)
    assert worst([light, heavy, light]) is heavy
    table = counts_table([(Case("simsd", {}, 0.0, 8), heavy), (Case("vanilla", {}, 0.7, 1), light)]).splitlines()
    assert table[2:] == [
        "| simsd | 0 | 8 | 2 | 6 | 2 | 12 | 1 | 1 | 1 | 5 |",
        "| vanilla | 0.7 | 1 | 0 | 0 | 0 | 0 | 1 | 1 | 1 | 5 |",
    ]
    assert all(row.count("|") == table[0].count("|") for row in table)
