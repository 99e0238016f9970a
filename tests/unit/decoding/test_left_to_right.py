"""`simsd` with sequential remasking: drafted and verified from the left, so with branches it is vanilla's own order.

That holds for vanilla with one token a step. With fewer steps vanilla reveals several tokens at once; `simsd` does not.
"""

from dataclasses import replace
from typing import Literal

import pytest

from simsd.in_process import generate_all
from simsd.messages.request import DecodeParams
from simsd.worker.worker import Worker
from tests import oracle
from tests.unit import pairs
from tests.unit.loops import Pair, request

BASE = DecodeParams(remasking="sequential", max_tokens=24)
VARIANTS = [
    {"draft_steps": 1},
    {"gamma": 2},
    {"gamma": 3, "draft_steps": 2, "fallback": "target"},
    {"drafter": "self"},
    {"draft_steps": 1, "steps": 2},
    {"draft_steps": 1, "lookahead": 2},
    {"gamma": 3, "lookahead": 4},
]
"""A whole block, parts of it with a bonus, the rest left to the target, the target's own draft, fewer steps, and blocks
beyond."""


@pytest.mark.parametrize("drafted_by", ["shipped", "random"])
@pytest.mark.parametrize("block_size", [4, 8])
def test_greedy_branches_are_vanilla(block_size: int, drafted_by: Literal["shipped", "random"]) -> None:
    draft: Worker | None = pairs.random_draft(block_size) if drafted_by == "random" else None
    prompts = [pairs.chat(question.prompt) for question in pairs.heldout(8)]
    loop = pairs.loop_of(block_size, draft)
    want = pairs.run(loop, prompts, [replace(BASE, method="vanilla")] * len(prompts))
    params = [replace(BASE, layout="branches", **VARIANTS[i % len(VARIANTS)]) for i in range(len(prompts))]
    got = pairs.run(loop, prompts, params)
    model = pairs.worker("target", block_size)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.token_ids != b.token_ids:
            plain = replace(BASE, method="vanilla").resolve(block_size)
            reference = oracle.decode(
                model.model, prompts[i], plain, block_size, model.info.mask_token_id, model.info.eos_token_ids
            )
            assert reference.margin < oracle.TIE, f"{params[i]} differs without a tie: {a.text!r} {b.text!r}"
    assert sum(c.stats.accepted for c in got) > (100 if drafted_by == "shipped" else 0)
    assert sum(c.stats.bonus for c in got) > 0 or drafted_by == "random"


def test_the_text_is_that_of_vanilla_with_one_token_a_step(pair: Pair) -> None:
    """Whatever `steps` of `simsd` is. On a random pair, where tokens that are revealed together do not fit."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))

    def answered(**params: object) -> list[list[int]]:
        asked = [request(f"{n}", n, remasking="sequential", **params) for n in (5, 18, 40)]  # type: ignore[arg-type]
        return [done.token_ids for done in generate_all(loop, asked)]

    want = answered(method="vanilla")
    assert answered(layout="branches", steps=2) == answered(layout="branches", steps=1, draft_steps=1) == want
    assert answered(method="vanilla", steps=2) != want


def test_the_approximation_of_paired_rows_hardly_shows() -> None:
    """Of these answers 1 comes out otherwise than with branches; in the draft's own order it is 16."""
    prompts = [pairs.chat(question.prompt) for question in pairs.heldout(40)]
    loop = pairs.loop_of(8)
    one_step = replace(BASE, draft_steps=1)
    want = pairs.run(loop, prompts, [replace(one_step, layout="branches")] * len(prompts))
    got = pairs.run(loop, prompts, [one_step] * len(prompts))
    assert sum(a.token_ids != b.token_ids for a, b in zip(got, want, strict=True)) <= len(prompts) // 50
