"""Drafting the next block while the target verifies one: the same text, and the draft is there before it is asked."""

from pathlib import Path

import pytest

from simsd.config import LoopConfig, WorkerConfig
from simsd.in_process import LocalClient, generate_all
from simsd.loop.loop import Loop
from simsd.messages import round as drafts
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import Proposals, Work
from simsd.worker.worker import Worker
from tests.unit import pairs

COUNT = 12


class Ahead(LocalClient):
    """A draft that is asked as one of another process is; counts the tokens that it had ready."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.ready = self.fresh = 0
        self.last: drafts.Ahead | None = None

    def propose(self, batch: list[Work]) -> Proposals:
        last = self.last.items if self.last else {}
        ready = {work.seq_id for work in batch if work.seq_id in last and last[work.seq_id].serves(work)}
        proposals = super().propose(batch)
        assert all(proposals.items[seq_id] is last[seq_id].proposal for seq_id in ready)
        self.ready, self.fresh, self.last = self.ready + len(ready), self.fresh + len(batch), None
        return proposals

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> drafts.Ahead:
        if taken:
            self.worker.take_ahead(taken)
        self.last = self.worker.propose_ahead(batch)
        return self.last


def requests(block_size: int, method: str) -> list[Request]:
    questions = pairs.heldout(COUNT // 4)
    drafting = ((0, 0), (0, 1), (2, 1), (0, 2))
    return [
        Request(
            f"r{i}",
            pairs.chat(question.prompt),
            DecodeParams(
                method=method,
                gamma=drafting[i % 4][0],
                draft_steps=drafting[i % 4][1],
                temperature=(0.0, 1.0)[i // 4 % 2],
                seed=i,
                max_tokens=28 + i % 5,
                ignore_eos=i % 3 == 0,
            ).resolve(block_size),
        )
        for i, question in enumerate(questions)
    ]


def loops(block_size: int, batch: int) -> tuple[Loop, Loop, Ahead]:
    config = LoopConfig(max_running=batch)
    target, draft = pairs.worker("target", block_size), pairs.worker("draft", block_size)
    ahead = Ahead(draft)
    plain = Loop(LocalClient(target), LocalClient(draft), pairs.tokenizer(), config)
    return plain, Loop(LocalClient(target), ahead, pairs.tokenizer(), config), ahead


@pytest.mark.parametrize("method", ["simsd", "exact"])
@pytest.mark.parametrize("block_size", [4, 8])
def test_the_same_text_from_drafts_that_are_ready(block_size: int, method: str) -> None:
    plain, overlapped, ahead = loops(block_size, batch=5)
    asked = requests(block_size, method)
    want, got = generate_all(plain, asked), generate_all(overlapped, asked)
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    assert [(c.stats.rounds, c.stats.drafted, c.stats.accepted) for c in got] == [
        (c.stats.rounds, c.stats.drafted, c.stats.accepted) for c in want
    ]
    assert ahead.ready > 0.2 * ahead.fresh
    assert ahead.worker.page_use().held == 0


def test_what_is_gone_is_not_opened_again(tmp_path: Path) -> None:
    """A remote draft may be asked to go on with a sequence that was released meanwhile."""
    worker = Worker(WorkerConfig(role="draft", block_size=4))
    work = Work("a", DecodeParams().resolve(4), 32, 0, [], 0, BlockState.behind(0, [], 4, 3), 4)
    worker.propose([work])
    worker.release(["a"])
    assert worker.propose_ahead([work]).items == {}
    assert worker.page_use().sequences == 0


def test_a_draft_ahead_can_be_switched_off() -> None:
    target, draft = pairs.worker("target", 4), Ahead(pairs.worker("draft", 4))
    loop = Loop(LocalClient(target), draft, pairs.tokenizer(), LoopConfig(draft_ahead=False))
    generate_all(loop, requests(4, "simsd")[:2])
    assert draft.ready == 0 < draft.fresh
