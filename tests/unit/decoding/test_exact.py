"""`exact` gives the very tokens of `vanilla`, whatever draft, batch and settings; `vanilla` is what it says it is."""

import dataclasses
import itertools

import pytest

from simsd.in_process import Completion
from simsd.messages.request import DecodeParams
from tests import oracle
from tests.unit import pairs

REMASKINGS = ("static", "dynamic", "sequential", "entropy")
MAX_TIES = 2
"""Of 200 answers, so many may differ where the reference shows a tie (scores within 1e-4); each is looked at."""


def settings(block_size: int, count: int) -> list[DecodeParams]:
    """Every remasking, temperature, number of steps, way of drafting and depth, spread over the requests."""
    steps = (block_size, block_size // 2, block_size // 2 + 1)
    drafting = ((0, 0), (0, 1), (2, 1), (block_size - 1, 2))
    grid = itertools.product(REMASKINGS, (0.0, 1.0), steps, drafting)
    combos = [
        DecodeParams(
            method="exact",
            remasking=remasking,
            temperature=temperature,
            steps=n,
            gamma=gamma,
            draft_steps=draft_steps,
            max_tokens=16,
        )
        for remasking, temperature, n, (gamma, draft_steps) in grid
    ]
    # 96 combinations; a stride prime to it visits all, mixed, so neighbours in a batch differ.
    return [
        dataclasses.replace(
            combos[i * 37 % len(combos)],
            seed=i,
            top_k=(0, 8)[i % 2],
            top_p=(1.0, 0.95)[i % 3 == 0],
            lookahead=i % 5 * (i % 4 != 0),
        )
        for i in range(count)
    ]


def assert_same(block_size: int, prompts: list[list[int]], got: list[Completion], want: list[Completion]) -> None:
    model = pairs.worker("target", block_size)
    ties = 0
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason):
            continue
        params = settings(block_size, 200)[i].resolve(block_size)
        reference = oracle.decode(
            model.model, prompts[i], params, block_size, model.info.mask_token_id, model.info.eos_token_ids
        )
        assert reference.margin < oracle.TIE, f"request {i} ({params}) differs without a tie: {a.text!r} {b.text!r}"
        ties += 1
    assert ties <= MAX_TIES


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return [pairs.chat(question.prompt) for question in pairs.heldout(50)]


@pytest.fixture(scope="module", params=(4, 8))
def vanilla(request: pytest.FixtureRequest, prompts: list[list[int]]) -> tuple[int, list[Completion]]:
    block_size: int = request.param
    params = [dataclasses.replace(p, method="vanilla") for p in settings(block_size, len(prompts))]
    return block_size, pairs.run(pairs.loop_of(block_size, batch=16), prompts, params)


def test_vanilla_is_the_plain_reference(prompts: list[list[int]], vanilla: tuple[int, list[Completion]]) -> None:
    """The paged, batched, folded loop against the plain oracle; a sample of the 200."""
    block_size, done = vanilla
    model = pairs.worker("target", block_size)
    params = [p.resolve(block_size) for p in settings(block_size, len(prompts))]
    for i in range(0, len(prompts), 8):
        reference = oracle.decode(
            model.model, prompts[i], params[i], block_size, model.info.mask_token_id, model.info.eos_token_ids
        )
        assert done[i].token_ids == reference.tokens or reference.margin < oracle.TIE


@pytest.mark.parametrize(
    ("batch", "count"), [(1, 40), pytest.param(1, 200, marks=pytest.mark.slow), (3, 100), (16, 200)]
)
def test_exact_is_vanilla(
    prompts: list[list[int]], vanilla: tuple[int, list[Completion]], batch: int, count: int
) -> None:
    block_size, want = vanilla
    got = pairs.run(pairs.loop_of(block_size, batch=batch), prompts[:count], settings(block_size, len(prompts))[:count])
    assert_same(block_size, prompts[:count], got, want[:count])
    assert sum(c.stats.accepted for c in got) > 0


@pytest.mark.parametrize("batch", [1, 16])
def test_exact_is_vanilla_with_a_random_draft(
    prompts: list[list[int]], vanilla: tuple[int, list[Completion]], batch: int
) -> None:
    block_size, want = vanilla
    draft = pairs.random_draft(block_size)
    count = 100 if batch > 1 else 24
    got = pairs.run(
        pairs.loop_of(block_size, draft, batch), prompts[:count], settings(block_size, len(prompts))[:count]
    )
    assert_same(block_size, prompts[:count], got, want[:count])


def test_exact_takes_fewer_target_forwards(prompts: list[list[int]]) -> None:
    """Same text for less: else the equality above would be bought by drafting nothing."""
    plain = [DecodeParams(method="vanilla", max_tokens=24)] * 24
    drafted = [DecodeParams(method="exact", max_tokens=24, row_budget=64)] * 24
    slow = pairs.run(pairs.loop_of(4, batch=1), prompts[:24], plain)
    fast = pairs.run(pairs.loop_of(4, batch=1), prompts[:24], drafted)
    assert sum(c.stats.target_forwards for c in fast) < 0.6 * sum(c.stats.target_forwards for c in slow)
