"""The next round waits in the target before the last one's verdicts are known: the same rounds, only sooner."""

from typing import Any

import pytest

from simsd.config import LoopConfig
from simsd.engine import Completion, LocalClient, generate_all
from simsd.errors import WorkerLostError
from simsd.loop import Loop
from simsd.sequence import Role
from simsd.types import DecodeParams, Proposals, Report, Request, Verdicts, Work
from simsd.worker import Worker
from tests.unit import pairs
from tests.unit.test_draft_ahead import Ahead

METHODS: dict[str, dict[str, Any]] = {
    "vanilla": {"method": "vanilla"},
    "vanilla-dynamic": {"method": "vanilla", "remasking": "dynamic", "threshold": 0.9},
    "simsd": {"gamma": 0, "draft_steps": 1},
    "simsd-target": {"gamma": 4, "fallback": "target", "layout": "branches"},
    "exact": {"method": "exact", "draft_steps": 1},
    "exact-self": {"method": "exact", "drafter": "self"},
}


class Queueing(LocalClient):
    """A target whose calls wait for each other, as an engine's do: each is made when the one before it is over."""

    queues = True

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.ordered = self.followed = self.missed = 0

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        self.ordered += 1
        return await super().verify(batch, proposals)

    async def verify_next(self, seq_ids: list[str], ahead: Any) -> Verdicts | None:
        verdicts = await super().verify_next(seq_ids, ahead)
        self.followed, self.missed = self.followed + (verdicts is not None), self.missed + (verdicts is None)
        return verdicts


def requests(block_size: int, stops: bool, settings: dict[str, Any]) -> list[Request]:
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
                stop=("1", "e")[: i % 3] if stops else (),
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
    asked = requests(block_size, batch == 1, METHODS[method])

    def decode(config: LoopConfig) -> list[Completion]:
        return generate_all(Loop(target, draft, pairs.tokenizer(), config), asked)

    decode(LoopConfig(max_running=batch, async_scheduling=False))  # fills the prefix cache
    want = decode(LoopConfig(max_running=batch, async_scheduling=False))
    assert (target.followed, target.missed) == (0, 0)
    target.ordered = 0
    got = decode(LoopConfig(max_running=batch))
    assert facts(got) == facts(want)
    assert target.followed > 0
    assert workers[0].page_use().held == workers[1].page_use().held == 0


class Dying(Queueing):
    """Is gone in its third round that nobody ordered."""

    async def verify_next(self, seq_ids: list[str], ahead: Any) -> Verdicts | None:
        if self.followed == 3:
            raise WorkerLostError("the target is gone", "target")
        return await super().verify_next(seq_ids, ahead)


def test_a_target_that_dies_meanwhile_is_replaced() -> None:
    target, draft = pairs.worker("target", 4), Ahead(pairs.worker("draft", 4))
    asked = requests(4, True, METHODS["simsd"])
    want = generate_all(Loop(LocalClient(target), draft, pairs.tokenizer(), LoopConfig(max_running=1)), asked)
    dying, replaced = Dying(target), []

    async def replace(role: Role) -> Any:
        replaced.append(role)
        target.release_all()
        return Queueing(target)

    loop = Loop(dying, draft, pairs.tokenizer(), LoopConfig(max_running=1), replace)
    got = generate_all(loop, asked)
    assert [(c.token_ids, c.text) for c in got] == [(c.token_ids, c.text) for c in want]
    assert (dying.followed, replaced) == (3, ["target"])


def test_it_can_be_switched_off() -> None:
    target = Queueing(pairs.worker("target", 4))
    config = LoopConfig(async_scheduling=False)
    generate_all(Loop(target, None, pairs.tokenizer(), config), requests(4, True, METHODS["vanilla"])[:2])
    assert (target.followed, target.missed) == (0, 0)
