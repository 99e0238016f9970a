"""What a version answers, written down: texts, counts and rounds of requests by every method, on the shipped pair.

`python -m tests.unit.records FILE` writes the record of the code it is run from. `tests/records/0.1.0.json` was
written by version 0.1.0; tests/unit/test_records.py holds later versions against it. Entries in which 0.1.0 had a fault
were written again when it was corrected:

* `fallback: target` took a bonus, which left fewer than gamma positions open.
* `exact` with a gamma below the open positions did not look at the state with all drafted tokens.
* Confidence and entropy were those after top-k, top-p and min-p.
* `s2d2` had no event for a round that drafted a span.
"""

import asyncio
import dataclasses
import json
import sys
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import torch

from simsd.config import LoopConfig, WorkerConfig
from simsd.in_process import LocalClient
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Report, Request
from simsd.worker.draft_process import DraftProcess
from simsd.worker.worker import Worker
from tests.unit.pairs import chat, fresh_random_draft, heldout, tokenizer

Params = dict[str, Any]

REMASKING = ("static", "dynamic", "sequential", "entropy")
TIMES = ("queue_s", "prefill_s", "decode_s")


@dataclasses.dataclass(frozen=True)
class Group:
    """Requests decoded together by one loop: which draft, how many at a time, and how each is decoded."""

    name: str
    block_size: int
    draft: str
    batch: int
    params: tuple[Params, ...]
    reports: tuple[Params, ...] = ({},)


def _methods(block_size: int) -> list[Params]:
    """Every method in every layout, remasking and way to draft that the request options allow."""
    half = block_size // 2
    plain = [{"method": "vanilla", "remasking": remasking} for remasking in REMASKING]
    plain += [{"method": "vanilla", "steps": half}, {"method": "vanilla", "ignore_eos": True, "max_tokens": 21}]
    paired: list[Params] = [{"remasking": remasking} for remasking in REMASKING]
    paired += [{"draft_steps": 1}, {"gamma": half, "draft_steps": 1}, {"gamma": half, "fallback": "target"}]
    paired += [{"drafter": "self"}, {"drafter": "self", "remasking": "sequential", "gamma": half}]
    branches = [params | {"layout": "branches"} for params in paired]
    exact: list[Params] = [{"method": "exact", "remasking": remasking} for remasking in REMASKING]
    exact += [{"method": "exact", "steps": half}, {"method": "exact", "draft_steps": 1, "row_budget": 4 * block_size}]
    exact += [{"method": "exact", "drafter": "self"}, {"method": "exact", "gamma": half, "draft_steps": 1}]
    s2d2 = [
        {"method": "s2d2", "routing": routing, "routing_score": score}
        for routing in ("span", "score", "hysteresis", "ucb")
        for score in ("margin", "entropy")
    ]
    return [*plain, *paired, *branches, *exact, *s2d2]


def groups() -> list[Group]:
    """200 requests in all; a group's requests share prompts' families, a seed each and a limit of tokens."""
    warm: Params = {"temperature": 1.0}
    cut: Params = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "draft_top_k": 8}
    rare: list[Params] = [
        {"stop": ("e",)},
        {"min_tokens": 14, "logit_bias": ((65, 3.0), (70, -5.0))},
        {"method": "exact", "min_tokens": 14, "temperature": 1.0},
        {"method": "vanilla", "temperature": 0.7, "stop": ("s", "12")},
        {"max_tokens": 3},
        {"max_tokens": 5, "method": "exact", "remasking": "dynamic"},
    ]
    found = []
    for size in (4, 8):
        methods = _methods(size)
        found.append(Group(f"greedy, B = {size}", size, "shipped", 16, tuple(methods)))
        found.append(Group(f"sampled, B = {size}", size, "shipped", 16, tuple(p | warm for p in methods)))
        found.append(
            Group(f"filtered, random draft, B = {size}", size, "random", 3, tuple(p | cut for p in methods[::4]))
        )
    told: tuple[Params, ...] = (
        {"logprobs": 2},
        {"logprobs": 0, "prompt": True},
        {"events": True},
        {"logprobs": 1, "events": True},
    )
    found.append(Group("told more", 4, "shipped", 4, tuple(_methods(4)[::2]), told))
    found.append(Group("alone, B = 8", 8, "shipped", 1, tuple(_methods(8)[1::2])))
    found.append(Group("edges", 4, "shipped", 1, tuple(rare)))
    overlapped = [{}, {"method": "exact"}, {"temperature": 1.0, "draft_steps": 1}, {"remasking": "sequential"}]
    found.append(Group("draft in a process of its own", 4, "process", 2, tuple(overlapped)))
    return found


def requests(group: Group) -> list[Request]:
    """The group's requests: as many prompts as settings, drawn from the held-out questions."""
    questions = heldout(40, seed=11)
    Random(group.name).shuffle(questions)
    made = []
    for i, params in enumerate(group.params):
        report = Report(**group.reports[i % len(group.reports)])
        params = {"max_tokens": 24, "seed": i} | params
        made.append(Request(f"{group.name} {i}", chat(questions[i].prompt), DecodeParams(**params), report))
    return made


def _loop(group: Group) -> Loop:
    config = LoopConfig(max_running=group.batch)
    target = LocalClient(Worker(WorkerConfig(role="target", block_size=group.block_size, threads=1)))
    if group.draft == "process":
        return Loop(
            target,
            DraftProcess(WorkerConfig(role="draft", block_size=group.block_size, threads=1)),
            tokenizer(),
            config,
        )
    if group.draft == "random":
        return Loop(target, LocalClient(fresh_random_draft(group.block_size)), tokenizer(), config)
    draft = Worker(WorkerConfig(role="draft", block_size=group.block_size, threads=1))
    return Loop(target, LocalClient(draft), tokenizer(), config)


def _stats(stats: Any) -> dict[str, Any]:
    told = {name: value for name, value in stats.to_dict().items() if name not in TIMES}
    return told | {"accept_histogram": {str(k): v for k, v in sorted(stats.accept_histogram.items())}}


async def _answer(loop: Loop, request: Request) -> dict[str, Any]:
    outputs = [output async for output in loop.generate(request)]
    last = outputs[-1]
    assert last.stats is not None
    logprobs = list(chain.from_iterable(output.prompt_logprobs + output.logprobs for output in outputs))
    answer: dict[str, Any] = {
        "token_ids": list(chain.from_iterable(output.token_ids for output in outputs)),
        "text": "".join(output.text for output in outputs),
        "finish_reason": last.finish_reason,
        "stats": _stats(last.stats),
    }
    if logprobs:
        answer["logprobs"] = [round(each.logprob, 2) for each in logprobs]
        answer["alternatives"] = [[token for token, _ in each.top] for each in logprobs]
    if request.report.events:
        events = [event for output in outputs for event in output.events]
        answer["events"] = [[e.round, e.start, e.drafted, e.reveals] for e in events]
    return answer


async def _answers(loop: Loop, asked: list[Request], batch: int) -> list[dict[str, Any]]:
    gate = asyncio.Semaphore(batch)

    async def one(request: Request) -> dict[str, Any]:
        async with gate:
            return await _answer(loop, request)

    rounds = asyncio.create_task(loop.run())
    try:
        return await asyncio.gather(*(one(request) for request in asked))
    finally:
        rounds.cancel()


def run(group: Group, only: slice = slice(None)) -> dict[str, Any]:
    """Decode the group's requests, in their order and `batch` at a time."""
    torch.set_num_threads(1)
    loop = _loop(group)
    answers = asyncio.run(_answers(loop, requests(group)[only], group.batch))
    counted = loop.metrics
    totals = {
        "rounds": counted.rounds,
        "target_rows": counted.target.rows,
        "draft_rows": counted.draft.rows,
        "target_forwards": counted.target.prefill_forwards + counted.target.decode_forwards,
        "draft_forwards": counted.draft.prefill_forwards + counted.draft.decode_forwards,
    }
    return {"totals": totals, "answers": answers}


if __name__ == "__main__":
    found = {}
    for each in groups():
        found[each.name] = run(each)
        print(each.name, len(each.params), found[each.name]["totals"])
    Path(sys.argv[1]).write_text(
        json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace('},{"token_ids"', '},\n{"token_ids"')
        + "\n"
    )
