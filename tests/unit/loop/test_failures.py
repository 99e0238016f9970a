"""Clients that go away, workers that die, faults of ours: pages come back, and no answer changes."""

import asyncio
import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from simsd.errors import InternalError, WorkerLostError
from simsd.in_process import Completion, LocalClient, collect, generate_all
from simsd.loop.loop import Loop, Replace
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import Proposals, Verdict, Verdicts, Work
from simsd.messages.worker import PageUse, Role
from simsd.worker.worker import Worker
from tests.unit.loops import (
    Answer,
    Pair,
    Recorder,
    answers,
    mixed_requests,
    request,
    settled,
    started,
)
from tests.unit.toy_tokenizer import MASK_ID

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("method", ["vanilla", "simsd", "exact"])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_client_that_goes_away_frees_its_pages_in_both_workers(pair: Pair, method: str, prefix_cache: bool) -> None:
    """In the middle of an answer, beside a neighbour that notices nothing."""
    target, draft = (pair.worker(role, prefix_cache=prefix_cache) for role in ("target", "draft"))
    loop = pair.loop(target, draft)
    neighbour = request("neighbour", 31, max_tokens=60, temperature=1.0)
    undisturbed = generate_all(loop, [neighbour])[0].token_ids

    def use() -> tuple[PageUse, PageUse]:
        return target.page_use(), draft.page_use()

    async def run() -> list[int]:
        rounds = asyncio.create_task(loop.run())
        before = use()
        beside = loop.generate(neighbour)
        tokens = (await anext(beside)).token_ids
        between = use()
        leaving = loop.generate(request("leaving", 90, max_tokens=80, method=method))
        await anext(leaving)
        assert target.page_use().held == between[0].held + 11  # 172 tokens
        assert draft.page_use().held == between[1].held + (0 if method == "vanilla" else 11)
        await leaving.aclose()
        await settled(lambda: target.page_use().sequences == 1)
        assert [u.held for u in use()] == [u.held for u in between]
        async for output in beside:
            tokens = tokens + output.token_ids
        assert [u.held for u in use()] == [u.held for u in before] == [0, 0]
        if not prefix_cache:
            assert use() == before
        rounds.cancel()
        return tokens

    assert asyncio.run(run()) == undisturbed
    assert loop.load() == (0, 0)


def test_a_client_that_goes_away_while_waiting_is_forgotten(pair: Pair) -> None:
    recorder = Recorder(pair.worker("target"))
    loop = pair.loop(recorder, pair.worker("draft"), max_running=1)

    async def run() -> None:
        rounds = asyncio.create_task(loop.run())
        tasks = [asyncio.create_task(collect(loop, request(name, 6))) for name in ("a", "gone", "b")]
        await settled(lambda: loop.load() == (1, 2))
        tasks[1].cancel()
        await asyncio.gather(tasks[0], tasks[2])
        rounds.cancel()

    asyncio.run(run())
    assert started(recorder.rounds) == ["a", "b"]


def test_who_leaves_the_queue_is_gone_before_the_next_round(pair: Pair) -> None:
    """A round may be long in coming, while a lost worker is replaced: no rounds are made here at all."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), max_running=1, max_queued=1)

    async def run() -> None:
        tasks = [asyncio.create_task(collect(loop, request(name, 6))) for name in ("a", "late")]
        await settled(lambda: loop.load() == (1, 1))
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        assert loop.load() == (1, 0)
        tasks[0].cancel()

    asyncio.run(run())


@dataclass
class Fate:
    """When one worker dies: in its n-th call, before it did anything, or after the work but before the answer."""

    role: Role
    dies_at: int
    after: bool = False
    calls: int = 0

    def strikes(self) -> bool:
        self.calls += 1
        return self.calls == self.dies_at


class MortalTarget(LocalClient):
    def __init__(self, worker: Worker, fate: Fate) -> None:
        super().__init__(worker)
        self.fate = fate

    async def verify(self, batch: list[Work], proposals: Any) -> Verdicts:
        if isinstance(proposals, WorkerLostError):  # as a remote call whose argument failed
            raise proposals
        dies = self.fate.role == "target" and self.fate.strikes()
        if dies and not self.fate.after:
            raise WorkerLostError("the target died", "target")
        verdicts = await super().verify(batch, proposals)
        if dies:
            raise WorkerLostError("the target died", "target")
        return verdicts


class MortalDraft(LocalClient):
    def __init__(self, worker: Worker, fate: Fate) -> None:
        super().__init__(worker)
        self.fate = fate

    def propose(self, batch: list[Work]) -> Any:
        if self.fate.role == "draft" and self.fate.strikes():
            return WorkerLostError("the draft died", "draft")
        return super().propose(batch)


@dataclass
class Spares:
    """Gives a fresh worker for a lost one."""

    pair: Pair
    fate: Fate
    workers: dict[Role, Worker] = field(default_factory=dict)

    async def __call__(self, role: Role) -> Any:
        self.workers[role] = self.pair.worker(role)
        client = MortalTarget if role == "target" else MortalDraft
        return client(self.workers[role], self.fate)


def mortal_loop(pair: Pair, fate: Fate, replace: Replace | None) -> Loop:
    target, draft = MortalTarget(pair.worker("target"), fate), MortalDraft(pair.worker("draft"), fate)
    return pair.loop(target, draft, replace, prefill_rows=64)


@pytest.mark.parametrize("dies_at", [1, 3, 6, 11])
@pytest.mark.parametrize(("role", "after"), [("target", False), ("target", True), ("draft", False)])
def test_a_lost_worker_costs_a_prefill_and_no_answer(
    pair: Pair, alone: list[Answer], role: Role, after: bool, dies_at: int
) -> None:
    """During prefill and in mid-block, for every method: the same tokens and the same text."""
    fate = Fate(role, dies_at, after)
    spares = Spares(pair, fate)
    loop = mortal_loop(pair, fate, spares)
    assert answers(generate_all(loop, mixed_requests())) == alone
    assert list(spares.workers) == [role]
    assert fate.calls > dies_at  # the fresh one worked
    assert spares.workers[role].page_use().sequences == 0
    assert loop.load() == (0, 0)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_worker_that_is_to_go_is_changed_between_rounds(pair: Pair, alone: list[Answer], role: Role) -> None:
    """Under way, and with nothing to do: then at once, or it could not go before the next request."""
    spares = Spares(pair, Fate(role, 0))
    loop = mortal_loop(pair, spares.fate, spares)
    rounds = itertools.count(1)
    loop.on_round = lambda *_: loop.change(role) if next(rounds) == 5 else None
    assert answers(generate_all(loop, mixed_requests())) == alone
    first = spares.workers.pop(role)
    assert getattr(loop, role).worker is first

    async def idle() -> None:
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(0)
        loop.change(role)
        await settled(lambda: role in spares.workers)
        task.cancel()

    asyncio.run(idle())
    assert getattr(loop, role).worker is spares.workers[role] is not first


@pytest.mark.parametrize("spares", ["none", "broken"])
def test_a_lost_worker_that_cannot_be_replaced_fails_its_requests(pair: Pair, spares: str) -> None:
    async def broken(role: Role) -> Any:
        raise RuntimeError(f"no {role} left")

    loop = mortal_loop(pair, Fate("target", 4), broken if spares == "broken" else None)

    async def run() -> list[Any]:
        rounds = asyncio.create_task(loop.run())
        failed = await asyncio.gather(*(collect(loop, each) for each in mixed_requests()), return_exceptions=True)
        rounds.cancel()
        return failed

    says = "no target left" if spares == "broken" else "the target died"
    failed = asyncio.run(run())
    assert all(isinstance(error, InternalError) and says in str(error) for error in failed)
    assert loop.load() == (0, 0)


def test_a_fault_of_ours_fails_the_running_and_serves_the_next(pair: Pair, alone: list[Answer]) -> None:
    class Faulty(LocalClient):
        calls = 0

        async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
            self.calls += 1
            if self.calls == 3:
                raise ValueError("a bug")
            return await super().verify(batch, proposals)

    target, draft = pair.worker("target"), pair.worker("draft")
    loop = pair.loop(Faulty(target), draft)

    async def run() -> list[Completion]:
        rounds = asyncio.create_task(loop.run())
        with pytest.raises(InternalError, match="ValueError in a round: a bug"):
            await collect(loop, mixed_requests()[1])
        assert target.page_use().sequences == draft.page_use().sequences == 0
        done = [await collect(loop, each) for each in mixed_requests()[:2]]
        rounds.cancel()
        return done

    assert answers(asyncio.run(run())) == alone[:2]


def work_from(start: int, held: int, tail: list[int] | None) -> Work:
    """A greedy round of a sequence of which the worker is thought to hold `start` of `held` committed tokens."""
    tokens = request("w", 16).prompt_ids[:held]
    params = DecodeParams(method="vanilla", ignore_eos=True).resolve(4)
    block = None if tail is None else BlockState.behind(held, tail, 4, MASK_ID)
    return Work("w", params, 48, start, tokens[start:], 4, block, 0, 0)


OPEN = [50]


def test_a_round_asked_twice_has_one_answer(pair: Pair) -> None:
    """A verdict that got lost: the worker holds more than is thought, and goes on from there."""
    worker = pair.worker("target")
    prefilled = worker.verify([work_from(0, 4, None)], None).items["w"]
    assert (prefilled.cached, prefilled.blocks) == (4, [])
    first = worker.verify([work_from(4, 8, OPEN)], None).items["w"]
    assert (first.cached, first.revealed) == (8, 1)
    for start in (8, 4, 0):  # what it lacks counts from what it holds, not from what the loop believes
        assert worker.verify([work_from(start, 8, OPEN)], None).items["w"] == first


@pytest.mark.parametrize(("start", "held"), [(8, 12), (16, 16), (0, 0)])
def test_a_worker_that_holds_something_else_says_so_and_does_nothing(pair: Pair, start: int, held: int) -> None:
    """It holds 4 tokens; asked to go on from more, or of less, it would build on the wrong context."""
    worker = pair.worker("target")
    worker.verify([work_from(0, 4, None)], None)
    verdicts = worker.verify([work_from(start, held, OPEN)], None)
    assert verdicts.items["w"] == Verdict(cached=4)
    assert verdicts.target_forwards == 0
    proposals = worker.propose([dataclasses.replace(work_from(start, held, OPEN), gamma=2)])
    assert (proposals.items, proposals.cached, proposals.forwards) == ({}, {"w": 4}, 0)


def test_a_worker_that_knows_nothing_of_a_running_sequence_says_so(pair: Pair) -> None:
    """It was replaced between two rounds: no pages are taken on the strength of half a story."""
    worker = pair.worker("target")
    assert worker.verify([work_from(4, 8, OPEN)], None).items["w"] == Verdict(cached=0)
    assert worker.page_use().sequences == 0
