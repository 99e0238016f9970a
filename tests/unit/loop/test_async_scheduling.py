"""The next round waits in the target before the last one's verdicts are known: the same rounds, only sooner."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest

from simsd.config import LoopConfig
from simsd.errors import WorkerLostError
from simsd.in_process import Completion, LocalClient, collect, generate_all
from simsd.loop.loop import Loop
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, Report, Request
from simsd.messages.round import Proposals, Verdicts, Work
from simsd.messages.worker import Role
from simsd.worker.tensor_parallel import LeadingWorker
from simsd.worker.worker import Worker
from tests.unit import pairs
from tests.unit.loops import settled
from tests.unit.worker.test_draft_ahead import Ahead

T = TypeVar("T")
METHODS: dict[str, dict[str, Any]] = {
    "vanilla": {"method": "vanilla"},
    "vanilla-dynamic": {"method": "vanilla", "remasking": "dynamic", "threshold": 0.9},
    "simsd": {"gamma": 0, "draft_steps": 1},
    "simsd-target": {"gamma": 4, "fallback": "target", "layout": "branches"},
    "exact": {"method": "exact", "draft_steps": 1},
    "exact-self": {"method": "exact", "drafter": "self"},
}


class Queueing(LocalClient):
    """A target with a thread of its own, in which calls wait for each other and are made also if nobody waits for them,
    as in an engine. `followed` and `missed` count `verify_next`, `ordered` the rest.
    """

    queues = True

    def __init__(self, worker: "Worker | LeadingWorker") -> None:
        super().__init__(worker)
        self.ordered = self.followed = self.missed = 0
        self._thread = ThreadPoolExecutor(1)

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        self.ordered += 1
        return await self._call(lambda: self.worker.verify(batch, proposals))

    async def verify_next(self, ahead: Any) -> Verdicts | None:
        def call() -> Verdicts | None:
            verdicts = self.worker.verify_next(ahead)
            self.followed, self.missed = self.followed + (verdicts is not None), self.missed + (verdicts is None)
            return verdicts

        return await self._call(call)

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.shield(asyncio.wrap_future(self._thread.submit(call)))


def requests(block_size: int, settings: dict[str, Any]) -> list[Request]:
    """Greedy and sampled; that end at EOS, at a stop string, inside a block; with log-probabilities and events."""
    return [
        Request(
            f"r{i}",
            pairs.chat(question.prompt),
            DecodeParams(
                temperature=(0.0, 1.0)[i % 2],
                seed=i,
                max_tokens=26 + i % 7,
                ignore_eos=i % 3 == 0,
                min_tokens=(0, 12)[i % 4 == 3],
                stop=("1", "e") if i == 4 else (),
                **settings,
            ).resolve(block_size),
            Report(logprobs=(None, 2)[i % 4 == 1], events=i % 4 == 2),
        )
        for i, question in enumerate(pairs.heldout(2))
    ]


def facts(completions: list[Completion]) -> list[Any]:
    """All but times."""
    return [
        (c.token_ids, c.text, c.finish_reason, {k: v for k, v in c.stats.to_dict().items() if not k.endswith("_s")})
        for c in completions
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("block_size", "batch"), [(4, 5), (8, 1)])
def test_the_same_rounds(block_size: int, method: str, batch: int) -> None:
    workers = [pairs.worker("target", block_size), pairs.worker("draft", block_size)]
    target, draft = Queueing(workers[0]), Ahead(workers[1])
    asked = requests(block_size, METHODS[method])

    def decode(config: LoopConfig) -> list[Completion]:
        return generate_all(Loop(target, draft, pairs.tokenizer(), config), asked)

    decode(LoopConfig(max_running=batch, async_scheduling=False))  # fills the prefix cache
    want = decode(LoopConfig(max_running=batch, async_scheduling=False))
    assert (target.followed, target.missed) == (0, 0)
    ordered = target.ordered / 2
    got = decode(LoopConfig(max_running=batch))
    assert facts(got) == facts(want)
    assert target.followed > 0
    assert target.ordered < 3 * ordered
    assert workers[0].page_use().held == workers[1].page_use().held == 0


def test_rounds_follow_until_a_stop_string_shows() -> None:
    """The text that a stop string ends, and its counts, are those without asynchronous scheduling; batch mates' too."""
    target, draft = Queueing(pairs.worker("target", 4)), Ahead(pairs.worker("draft", 4))
    plain = requests(4, METHODS["simsd"])
    ended = [replace(each, params=replace(each.params, stop=("1", "e"), min_tokens=8)) for each in plain]
    for asked in ([ended[0]], [*ended[:2], *plain[2:4]]):
        decode = partial(generate_all, requests=asked)
        decode(Loop(target, draft, pairs.tokenizer(), LoopConfig(async_scheduling=False)))  # fills the prefix cache
        want = decode(Loop(target, draft, pairs.tokenizer(), LoopConfig(async_scheduling=False)))
        assert want[0].finish_reason == "stop"
        followed = target.followed
        assert facts(decode(Loop(target, draft, pairs.tokenizer(), LoopConfig()))) == facts(want)
        assert target.followed > followed
    assert target.worker.page_use().held == draft.worker.page_use().held == 0


async def replaced_by(target: Worker, roles: list[Role], role: Role) -> Any:
    """Another client of the same worker, which has lost all it knew."""
    roles.append(role)
    target.release_all()
    return Queueing(target)


def test_a_target_that_dies_meanwhile_is_replaced() -> None:
    """When it is to do its fourth round that nobody ordered."""

    class Dying(Queueing):
        calls = 0

        async def verify_next(self, ahead: Any) -> Verdicts | None:
            self.calls += 1
            if self.calls > 3:
                raise WorkerLostError("the target is gone", "target")
            return await super().verify_next(ahead)

    target, draft = pairs.worker("target", 4), Ahead(pairs.worker("draft", 4))
    asked = requests(4, METHODS["simsd"])
    want = generate_all(Loop(LocalClient(target), draft, pairs.tokenizer(), LoopConfig(max_running=1)), asked)
    dying, roles = Dying(target), list[Role]()
    another = partial(replaced_by, target, roles)
    got = generate_all(Loop(dying, draft, pairs.tokenizer(), LoopConfig(max_running=1), another), asked)
    assert [(c.token_ids, c.text) for c in got] == [(c.token_ids, c.text) for c in want]
    assert (dying.calls, roles) == (4, ["target"])


def test_clients_that_come_and_go_meanwhile() -> None:
    """Who comes is taken in, who goes leaves no page, and nobody's text changes."""
    target, draft = Queueing(pairs.worker("target", 4)), Ahead(pairs.worker("draft", 4))
    asked = requests(4, METHODS["simsd"])
    want = generate_all(Loop(LocalClient(target.worker), draft, pairs.tokenizer(), LoopConfig()), asked)

    async def leave(loop: Loop, request: Request, after: int) -> None:
        async with aclosing(loop.generate(request)) as outputs:
            async for _ in outputs:
                after -= 1
                if not after:
                    return

    async def everything() -> list[Completion]:
        loop = Loop(target, draft, pairs.tokenizer(), LoopConfig(max_running=4))
        rounds = asyncio.create_task(loop.run())
        going = [leave(loop, replace(each, request_id=f"leaves{i}"), 1 + i % 4) for i, each in enumerate(asked)]
        found = await asyncio.gather(*(collect(loop, each) for each in asked), *going)
        await settled(lambda: not loop.running)
        rounds.cancel()
        return found[: len(asked)]

    got = asyncio.run(everything())
    assert [(c.token_ids, c.text) for c in got] == [(c.token_ids, c.text) for c in want]
    assert target.followed > 0
    assert target.worker.page_use().held == draft.worker.page_use().held == 0


def test_what_is_gone_is_not_opened_again() -> None:
    """A release may overtake the next round; of a prompt below a block the worker then holds nothing at all."""
    worker = pairs.worker("target", 4)
    work = Work("a", DecodeParams(method="vanilla").resolve(4), 32, 0, [], 0, BlockState.behind(0, [], 4, 3), 0)
    worker.verify([work], None)
    worker.release(["a"])
    assert worker.verify_next(None) is None
    assert worker.page_use().sequences == 0


def test_no_round_follows_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = pairs.worker("target", 4)
    work = Work("a", DecodeParams(method="vanilla").resolve(4), 32, 0, [], 0, BlockState.behind(0, [], 4, 3), 0)
    worker.verify([work], None)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "_forward", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            worker.verify_next(None)
    assert worker.verify_next(None) is None
    worker.release(["a"])


def test_it_can_be_switched_off() -> None:
    target = Queueing(pairs.worker("target", 4))
    config = LoopConfig(async_scheduling=False)
    generate_all(Loop(target, None, pairs.tokenizer(), config), requests(4, METHODS["vanilla"])[:2])
    assert (target.followed, target.missed) == (0, 0)
