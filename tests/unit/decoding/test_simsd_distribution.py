"""`simsd` with branches emits the target's conditionals in the draft's order: against enumeration, by chi-square."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from scipy.stats import chisquare
from torch import Tensor

from simsd.config import LoopConfig, WorkerConfig
from simsd.decoding import draft as draft_module
from simsd.decoding.draft import Drafting
from simsd.in_process import LocalClient, generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd.tokens.tokenizer import Tokenizer
from simsd.verification.accept import Scores, Slots
from simsd.verification.rows import Rows
from simsd.worker.worker import Worker
from tests import oracle
from tests.unit import toy_tokenizer
from tests.unit.checkpoints import Shape, write_checkpoint
from tests.unit.numbers import log_probs_of, model_log_probs_of

VOCAB, MASK, B = 5, 4, 3
PROMPT = [1, 2, 0]
SAMPLES = 2500


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Worker, Worker, Tokenizer]:
    """Two random models over five tokens, the mask among them, sharp enough that order and acceptance matter."""
    workers = []
    for role, seed in (("target", 1), ("draft", 2)):
        shape = Shape(vocab_size=VOCAB, hidden_size=16, heads=2, kv_heads=1, intermediate_size=24)
        path = tmp_path_factory.mktemp(role)
        write_checkpoint(path, shape, seed=seed, block_size=B, mask_token_id=MASK, tokenizer=False)
        toy_tokenizer.write_letters(path, VOCAB - 1)
        workers.append(Worker(WorkerConfig(role=role, model=str(path))))
    return workers[0], workers[1], Tokenizer.load(path)


@functools.cache
def logits_of(worker: Worker, tokens: tuple[int, ...]) -> Tensor:
    logits = oracle.dense_logits(worker.model, list(tokens), oracle.block_causal(len(tokens), B))
    logits[:, MASK] = -math.inf
    return logits


def conditional(
    worker: Worker, before: list[int], block: list[int], offset: int, params: DecodeParams, filtered: bool = True
) -> Tensor:
    """The distribution at one open offset of the block after the tokens `before`."""
    logits = logits_of(worker, (*before, *block))[len(before) + offset]
    wants = [(params, len(before) + offset, 0)]
    return (log_probs_of if filtered else model_log_probs_of)(logits.unsqueeze(0), wants)[0].exp()


Plan = tuple[tuple[int, tuple[float, ...]], ...]
"""Drafted offsets still to be judged, each with the distribution q that its token is drawn from."""


def plan(draft: Worker, before: list[int], block: list[int], params: DecodeParams) -> Plan:
    """What the draft does next from a state: its surest position, or with one draft forward all, surest first.

    With sequential remasking from the left instead.
    """
    q = {o: conditional(draft, before, block, o, params) for o in range(B) if block[o] == MASK}
    top = {o: float(conditional(draft, before, block, o, params, filtered=False).max()) for o in q}
    order = sorted(q, key=lambda o: (-top[o], o)) if params.remasking == "static" else sorted(q)
    return tuple((o, tuple(q[o].tolist())) for o in order[: len(order) if params.draft_steps == 1 else 1])


def enumerate_blocks(
    target: Worker, draft: Worker, params: DecodeParams, before: list[int] = PROMPT
) -> dict[tuple[int, ...], float]:
    """Probability of every block after `before`, positions in the draft's order, tokens from the target's conditionals.

    A token stands with probability min(p, q) and is recovered with max(0, p - q): p in all. The two cases are kept
    apart because after a rejection the draft plans anew.
    """
    states: dict[tuple[tuple[int, ...], Plan], float] = {((MASK,) * B, ()): 1.0}
    for _ in range(B):
        following: dict[tuple[tuple[int, ...], Plan], float] = {}
        for (state, planned), chance in states.items():
            (offset, q), *rest = planned or plan(draft, before, list(state), params)
            for token, p in enumerate(conditional(target, before, list(state), offset, params).tolist()):
                block = tuple(token if o == offset else t for o, t in enumerate(state))
                for share, left in ((min(p, q[token]), tuple(rest)), (max(0.0, p - q[token]), ())):
                    if share > 0:
                        following[block, left] = following.get((block, left), 0.0) + chance * share
        states = following
    blocks: dict[tuple[int, ...], float] = {}
    for (block, _), chance in states.items():
        blocks[block] = blocks.get(block, 0.0) + chance
    return blocks


def enumerate_pairs(target: Worker, draft: Worker, params: DecodeParams) -> dict[tuple[int, ...], float]:
    """Probability of two blocks after PROMPT: each is decoded as if the one before had been a prompt.

    Pairs whose first block alone is too rare to be counted are left out.
    """
    return {
        first + second: chance * share
        for first, chance in enumerate_blocks(target, draft, params).items()
        if chance * SAMPLES >= 5
        for second, share in enumerate_blocks(target, draft, params, [*PROMPT, *first]).items()
    }


def p_value(pair: tuple[Worker, Worker, Tokenizer], blocks: int = 1, **settings: Any) -> float:
    """How likely so large a difference is, if the answers, of so many blocks, are distributed as they should be."""
    target, draft, tokenizer = pair
    loop = Loop(LocalClient(target), LocalClient(draft), tokenizer, LoopConfig(max_running=128))
    base: dict[str, Any] = {"method": "simsd", "layout": "branches", "temperature": 1.0, "ignore_eos": True}
    base["max_tokens"] = blocks * B
    requests = [Request(f"r{i}", PROMPT, DecodeParams(**(base | settings), seed=i)) for i in range(SAMPLES)]
    expected = (enumerate_blocks if blocks == 1 else enumerate_pairs)(target, draft, requests[0].params)
    counts = Counter(tuple(completion.token_ids) for completion in generate_all(loop, requests))
    assert blocks > 1 or counts.keys() <= expected.keys(), "a block of probability 0"
    likely = [block for block, p in expected.items() if p * SAMPLES >= 5]
    rest = SAMPLES - sum(counts[block] for block in likely)
    observed = [*(counts[block] for block in likely), rest]
    wanted = [*(expected[block] * SAMPLES for block in likely)]
    wanted.append(SAMPLES - sum(wanted))
    if wanted[-1] < 5:
        observed[-2:], wanted[-2:] = [sum(observed[-2:])], [sum(wanted[-2:])]
    return float(chisquare(observed, wanted).pvalue)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"top_k": 2},
        {"top_p": 0.7},
        {"draft_steps": 1},
        {"gamma": 2},
        {"draft_top_k": 2},
        {"temperature": 0.7},
        {"remasking": "sequential", "draft_steps": 1},
    ],
    ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()) or "plain",
)
def test_blocks_are_distributed_as_the_target_says(
    pair: tuple[Worker, Worker, Tokenizer], settings: dict[str, Any]
) -> None:
    assert p_value(pair, **settings) > 0.001


@pytest.mark.parametrize(
    "settings",
    [{"draft_steps": 1}, {"temperature": 0.7, "remasking": "sequential", "lookahead": 4}],
    ids=["one-forward", "left-to-right"],
)
def test_two_blocks_in_one_round_are_distributed_as_one_after_the_other(
    pair: tuple[Worker, Worker, Tokenizer], settings: dict[str, Any]
) -> None:
    assert p_value(pair, blocks=2, **({"lookahead": 1} | settings)) > 0.001


def test_a_second_block_behind_other_tokens_is_caught(
    pair: tuple[Worker, Worker, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the test: it is judged as if the first block were all zeros."""
    assume = Rows.assume

    def zeros(self: Rows, tokens: Sequence[int], start: int, block_size: int) -> None:
        assume(self, [0] * len(tokens), start, block_size)

    monkeypatch.setattr(Rows, "assume", zeros)
    assert p_value(pair, blocks=2, lookahead=1, draft_steps=1) < 1e-6


def test_picking_by_the_sampled_token_is_caught(
    pair: tuple[Worker, Worker, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the test: the public implementation's way of choosing positions must fail it."""

    def biased(state: Drafting, slots: Slots, scores: Scores, step: int) -> list[int]:
        sampled = slots.of(scores.confidence)
        return sorted(range(len(sampled)), key=lambda i: -sampled[i])[: state.owed(step)]

    monkeypatch.setattr(draft_module, "pick", biased)
    assert p_value(pair) < 1e-6


def test_enumeration_sums_to_one(pair: tuple[Worker, Worker, Tokenizer]) -> None:
    target, draft, _ = pair
    blocks = enumerate_blocks(target, draft, DecodeParams(temperature=1.0))
    assert sum(blocks.values()) == pytest.approx(1.0)
    assert set(blocks) <= set(itertools.product(range(VOCAB), repeat=B))
