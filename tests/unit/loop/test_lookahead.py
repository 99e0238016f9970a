"""Blocks drafted beyond the open one: the same texts in fewer forwards, nothing behind an end, no KV of what fell.

The pair is small and random; three drafts agree with its target always, mostly and seldom.
"""

import asyncio
import dataclasses
from contextlib import aclosing
from random import Random
from typing import Any, get_args

import pytest
import torch

from simsd.forward.pages import PagePool, SequenceKV
from simsd.in_process import Completion, LocalClient, collect, generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Remasking, Report, Request
from simsd.messages.round import Proposals, Verdicts, Work
from simsd.verification.schemes import links_of
from simsd.worker.worker import Worker
from tests import oracle
from tests.unit import pairs
from tests.unit.checkpoints import write_checkpoint
from tests.unit.loop.test_async_scheduling import Queueing
from tests.unit.loops import SHAPE, Pair, request
from tests.unit.toy_tokenizer import MASK_ID
from tests.unit.worker.test_draft_ahead import Ahead

B = 4
JITTERS = {"always": 0.0, "mostly": 0.005, "seldom": 0.3}
DEPTHS = range(5)


@pytest.fixture(scope="module")
def agreeing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Pairs of one target, by how often the draft agrees with it."""
    directory = tmp_path_factory.mktemp("agreeing")
    target = write_checkpoint(directory / "target", SHAPE, seed=1)
    return {
        name: Pair(target, write_checkpoint(directory / name, SHAPE, seed=1, jitter=jitter))
        for name, jitter in JITTERS.items()
    }


@pytest.fixture(scope="module", params=JITTERS)
def loop(request: pytest.FixtureRequest, agreeing: dict[str, Pair]) -> Loop:
    pair = agreeing[request.param]
    return pair.loop(pair.worker("target"), pair.worker("draft"), max_running=8)


def workers_of(loop: Loop) -> list[Worker]:
    clients = [loop.target, loop.draft]
    assert all(isinstance(client, LocalClient) for client in clients)
    return [client.worker for client in clients]  # type: ignore[union-attr, misc]


def nothing_held(loop: Loop) -> bool:
    return all(worker.page_use().held == worker.page_use().sequences == 0 for worker in workers_of(loop))


def random_requests(count: int, seed: int) -> list[Request]:
    """Every remasking, number of steps, temperature, way of drafting and depth; prompts share beginnings."""
    rng = Random(seed)
    letters = [i for i in range(320) if i != MASK_ID]
    begun = [rng.choices(letters, k=64) for _ in range(4)]
    asked = []
    for i in range(count):
        gamma = rng.choice((0, 0, 0, 2, 3))
        params = DecodeParams(
            method="exact",
            lookahead=rng.choice(DEPTHS),
            remasking=rng.choice(get_args(Remasking)),
            steps=rng.randint(1, B),
            temperature=rng.choice((0.0, 1.0)),
            threshold=rng.choice((0.3, 0.9)),
            top_k=rng.choice((0, 12)),
            seed=i,
            gamma=gamma,
            draft_steps=rng.choice((1, gamma)),
            row_budget=rng.choice((0, B, 3 * B, 12 * B)),
            max_tokens=rng.randint(1, 30),
            min_tokens=rng.choice((0, 1)),
            ignore_eos=rng.random() < 0.5,
        )
        prompt = rng.choice(begun)[: rng.randint(0, 64)] + rng.choices(letters, k=rng.randint(1, 9))
        asked.append(Request(f"r{i}", prompt, params))
    return asked


def as_vanilla(asked: Request) -> Request:
    return dataclasses.replace(asked, params=dataclasses.replace(asked.params, method="vanilla"))


@pytest.mark.parametrize("count", [70, pytest.param(700, marks=pytest.mark.slow)])
def test_exact_is_vanilla_at_every_depth(loop: Loop, count: int) -> None:
    """In mixed batches, with hits in the prefix cache, while every fifth request leaves after a message or two."""
    asked = random_requests(count, seed=count)

    async def leave(name: str, leaving: Request, after: int) -> None:
        async with aclosing(loop.generate(dataclasses.replace(leaving, request_id=name))) as outputs:
            async for _ in outputs:
                after -= 1
                if not after:
                    return

    async def everything() -> list[Completion]:
        rounds = asyncio.create_task(loop.run())
        gate = asyncio.Semaphore(8)

        async def one(index: int) -> Completion:
            async with gate:
                if index % 5 == 0:
                    await leave(f"leaves {index}", asked[index], 1 + index % 2)
                return await collect(loop, asked[index])

        found = await asyncio.gather(*(one(index) for index in range(count)))
        await asyncio.sleep(0.01)
        rounds.cancel()
        return found

    got = asyncio.run(everything())
    want = generate_all(loop, [as_vanilla(each) for each in asked])
    model, info = workers_of(loop)[0].model, loop.target.info
    for each, a, b in zip(asked, got, want, strict=True):
        if (a.token_ids, a.finish_reason) != (b.token_ids, b.finish_reason):
            params = each.params.resolve(B)
            margin = oracle.decode(model, each.prompt_ids, params, B, MASK_ID, info.eos_token_ids).margin
            assert margin < oracle.TIE, f"{each.params} differs without a tie"
    assert sum(c.stats.cached_tokens for c in got) > 0
    assert nothing_held(loop)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("remasking", ["sequential", "static"])
def test_a_draft_that_agrees_fills_all_its_blocks_in_one_forward(
    agreeing: dict[str, Pair], remasking: Remasking, temperature: float
) -> None:
    """28 tokens are 7 blocks. One forward more reads the prompt."""
    pair = agreeing["always"]
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    settings: dict[str, Any] = {"remasking": remasking, "temperature": temperature, "seed": 3, "max_tokens": 28}
    [plain] = generate_all(loop, [request("r", 8, method="vanilla", **settings)])
    for depth, rounds in zip(DEPTHS, (7, 4, 3, 2, 2), strict=True):
        params = settings | {"method": "exact", "lookahead": depth, "row_budget": 99 * B}
        [done] = generate_all(loop, [request("r", 8, **params)])
        assert done.token_ids == plain.token_ids
        assert done.stats.accepted == done.stats.drafted == 28
        assert done.stats.target_forwards == rounds + 1


class Watching(LocalClient):
    """A target that remembers each round's works and proposals, and counts the rows of its forwards."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.seen: list[tuple[Work, Any]] = []
        self.rows: list[int] = []

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        self.seen += [
            (work, proposals.items[work.seq_id]) for work in batch if proposals and work.seq_id in proposals.items
        ]
        verdicts = await super().verify(batch, proposals)
        self.rows.append(verdicts.target_rows)
        return verdicts


@pytest.mark.parametrize("method", ["simsd", "exact"])
def test_nothing_is_drafted_behind_an_end(agreeing: dict[str, Pair], method: str) -> None:
    """Neither behind an EOS that was drafted (made likely here) nor behind max_tokens."""
    pair = agreeing["mostly"]
    target = Watching(pair.worker("target"))
    loop = pair.loop(target, pair.worker("draft"))
    eos = loop.target.info.eos_token_ids
    requests = [
        Request(
            f"r{i}",
            request("p", 5 + i).prompt_ids,
            DecodeParams(
                method=method,  # type: ignore[arg-type]
                lookahead=3,
                draft_steps=1,
                temperature=1.0,
                seed=i,
                max_tokens=9 + i,
                min_tokens=i % 3,
                logit_bias=((eos[0], 4.0),),
                remasking="sequential",
            ),
        )
        for i in range(12)
    ]
    done = generate_all(loop, requests)
    assert "stop" in {each.finish_reason for each in done}
    lengths = set()
    for work, proposal in target.seen:
        assert work.block is not None
        links = links_of(work.block, proposal)
        assert len(links) == len(proposal.blocks) <= 4
        lengths.add(len(links))
        for block, drafted in links[:-1]:
            filled = block.reveal(drafted.entries(), 0)
            assert filled.full
            assert filled.visible_end(work.params, work.prompt_tokens, eos)[1] is None
        assert links[-1][0].start < work.prompt_tokens + work.params.max_tokens
    assert {1, 4} <= lengths


def test_a_block_that_is_not_drafted_whole_ends_its_chain(agreeing: dict[str, Pair]) -> None:
    """With gamma below B that is every fresh block; the prompt's tail leaves three positions of the first one."""
    pair = agreeing["always"]
    target = Watching(pair.worker("target"))
    generate_all(pair.loop(target, pair.worker("draft")), [request("r", 9, gamma=3, lookahead=4)])
    first, *later = [
        [block.left for block, _ in links_of(work.block, each)] for work, each in target.seen if work.block
    ]
    assert first == [3, 4]
    assert all(len(lefts) == 1 + (lefts[0] <= 3) for lefts in later[:-1])


@pytest.mark.parametrize(("layout", "blocks"), [("paired", 4), ("branches", 3)])
def test_a_chain_keeps_to_the_rows_of_a_forward(agreeing: dict[str, Pair], layout: str, blocks: int) -> None:
    """Of 64 rows here. Branches of four whole blocks, with the rows between them, would be 76."""
    pair = agreeing["always"]
    target = Watching(pair.worker("target", max_rows=64))
    params = {"lookahead": 3, "layout": layout, "remasking": "sequential"}
    [done] = generate_all(pair.loop(target, pair.worker("draft")), [request("r", 8, 64, **params)])
    assert max(target.rows) <= 64
    if layout == "branches":
        assert done.stats.target_forwards == 1 + -(-16 // blocks)


@pytest.mark.parametrize("method", ["simsd", "exact"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_rounds_that_follow_by_themselves_are_the_same(agreeing: dict[str, Pair], method: str, depth: int) -> None:
    """With a draft that works ahead, and with a target that goes on before its verdicts are back."""
    pair = agreeing["mostly"]
    target, draft = pair.worker("target", prefix_cache=False), pair.worker("draft", prefix_cache=False)
    settings: dict[str, Any] = {"method": method, "lookahead": depth, "draft_steps": 1, "remasking": "sequential"}
    asked = [request(f"r{i}", 9 + 5 * i, 40, temperature=i % 2, seed=i, **settings) for i in range(4)]
    for batch in (1, 4):
        ahead, queueing = Ahead(draft), Queueing(target)
        config = {"max_running": batch}
        want = generate_all(pair.loop(target, draft, **config), asked)
        overlapped = generate_all(pair.loop(target, ahead, **config), asked)
        followed = generate_all(pair.loop(queueing, Ahead(draft), **config), asked)
        for got in (overlapped, followed):
            assert [(c.token_ids, c.stats.rounds, c.stats.drafted, c.stats.accepted) for c in got] == [
                (c.token_ids, c.stats.rounds, c.stats.drafted, c.stats.accepted) for c in want
            ]
        assert target.page_use().held == draft.page_use().held == 0


@pytest.mark.parametrize("depth", DEPTHS)
def test_chains_that_stand_follow_without_being_asked_for(agreeing: dict[str, Pair], depth: int) -> None:
    pair = agreeing["always"]
    target, draft = Queueing(pair.worker("target")), Ahead(pair.worker("draft"))
    asked = request("r", 9, 159, method="exact", lookahead=depth, row_budget=99 * B)
    [done] = generate_all(pair.loop(target, draft), [asked])
    assert target.followed > target.ordered
    assert done.stats.accepted == done.stats.drafted == 159
    assert done.stats.target_forwards <= 2 + 40 // (1 + depth) + 1


def test_a_lost_target_is_rebuilt_between_two_chains(agreeing: dict[str, Pair]) -> None:
    """All that it assumed is gone with it; the answers are the same."""
    pair = agreeing["mostly"]
    target, draft = pair.worker("target"), pair.worker("draft")
    asked = [request(f"r{i}", 9 + i, 40, method="exact", lookahead=1 + i) for i in range(4)]
    want = generate_all(pair.loop(target, draft), asked)

    class Forgetful(LocalClient):
        calls = 0

        async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
            self.calls += 1
            if self.calls % 4 == 0:
                self.worker.release_all()  # What it knew; the next verdict tells that it holds nothing.
            return await super().verify(batch, proposals)

    got = generate_all(pair.loop(Forgetful(target), draft), asked)
    assert [c.token_ids for c in got] == [c.token_ids for c in want]


def kv_of(worker: Worker, pages: list[int]) -> torch.Tensor:
    """[layers, tokens, 2, kv_heads, head_dim]: what these pages hold."""
    size = worker.pool.page_size
    slots = torch.tensor([page * size + i for page in pages for i in range(size)])
    return torch.stack([layer[slots] for layer in worker.kv])


def worst_difference(pair: Pair, method: str) -> float:
    """How far the KV of shared pages is from that of the same tokens when these are a prompt."""
    workers = {role: pair.worker(role, page_size=B) for role in ("target", "draft")}  # type: ignore[arg-type]
    fresh = {role: pair.worker(role, page_size=B) for role in ("target", "draft")}  # type: ignore[arg-type]
    loop = pair.loop(workers["target"], Ahead(workers["draft"]))
    asked = [
        request(f"r{i}", 6 + i, 40, method=method, lookahead=i % 4, draft_steps=1, temperature=i % 2, seed=i)
        for i in range(8)
    ]
    worst, compared = 0.0, 0
    for each, done in zip(asked, generate_all(loop, asked), strict=True):
        tokens = each.prompt_ids + done.token_ids
        for role, worker in workers.items():
            assert worker.pool.prefix is not None
            found = [page for page, _ in worker.pool.prefix.match(tokens)]
            compared += len(found) * B
            other = fresh[role]
            params = each.params.resolve(B)
            work = Work(each.request_id, params, 64, 0, tokens[: len(found) * B], 64, None, 0)
            if role == "draft":
                other.propose([work])
            else:
                other.verify([work], None)
            pages = other.pool.sequences[each.request_id].pages[: len(found)]
            difference = (kv_of(worker, found) - kv_of(other, pages)).abs().max()
            worst = max(worst, float(difference)) if found else worst
            other.release([each.request_id])
    assert compared > 8 * 20
    return worst


@pytest.mark.parametrize("method", ["simsd", "exact"])
def test_shared_pages_hold_the_kv_of_their_tokens(agreeing: dict[str, Pair], method: str) -> None:
    """Also where other tokens were assumed in their place before."""
    assert worst_difference(agreeing["mostly"], method) < 1e-4


def test_assumed_kv_that_is_taken_for_committed_is_caught(
    agreeing: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the test: a pool that does not look at what came to stand must fail it."""

    def trusting(self: PagePool, sequence: SequenceKV, known: list[int], assumed: list[int], block_size: int) -> None:
        held, sequence.assumed = min(len(sequence.assumed), len(known)), []
        self.advance(sequence, known[:held])

    monkeypatch.setattr(PagePool, "settle", trusting)
    assert worst_difference(agreeing["mostly"], "exact") > 1e-2


@pytest.mark.parametrize("method", ["simsd", "exact"])
def test_a_stop_string_ends_a_chain(agreeing: dict[str, Pair], method: str) -> None:
    """The worker does not know it, so tokens behind it may be decided; none of them is told."""
    pair = agreeing["always"]
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    settings: dict[str, Any] = {"method": method, "remasking": "sequential", "draft_steps": 1, "ignore_eos": True}
    ids = request("r", 9).prompt_ids
    [plain] = generate_all(loop, [Request("a", ids, DecodeParams(max_tokens=40, **settings))])
    stop = next(letter for letter in plain.text[len(plain.text) // 3 :] if letter.isascii() and letter.isalpha())
    at = plain.text.index(stop)
    [short] = generate_all(
        loop, [Request("b", ids, DecodeParams(max_tokens=40, lookahead=3, stop=(stop,), **settings), Report(0))]
    )
    assert (short.text, short.finish_reason) == (plain.text[:at], "stop")
    assert short.token_ids == plain.token_ids[: len(short.token_ids)]


def test_deeper_chains_take_fewer_forwards_on_the_shipped_pair() -> None:
    """And the texts are those without: of vanilla's dynamic decoding, and of vanilla from left to right."""
    prompts = [pairs.chat(question.prompt) for question in pairs.heldout(2)]
    for method, remasking in (("exact", "dynamic"), ("simsd", "sequential")):
        base = DecodeParams(method="vanilla", remasking=remasking, max_tokens=24)  # type: ignore[arg-type]
        want = [c.token_ids for c in pairs.run(pairs.loop_of(B), prompts, [base] * len(prompts))]
        forwards = []
        for depth in (0, 1, 2):
            params = dataclasses.replace(
                base,
                method=method,
                lookahead=depth,
                draft_steps=1,
                layout="branches",  # type: ignore[arg-type]
            )
            done = pairs.run(pairs.loop_of(B), prompts, [params] * len(prompts))
            assert [c.token_ids for c in done] == want
            forwards.append(sum(c.stats.target_forwards for c in done))
        assert forwards[0] > 1.2 * forwards[1] > 1.2 * 1.05 * forwards[2]
