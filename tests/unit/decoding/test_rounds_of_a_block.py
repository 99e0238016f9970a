"""How many rounds a block takes where the draft is never wrong: the draft has the target's own weights."""

from typing import Any

import pytest

from simsd.in_process import generate_all
from simsd.messages.request import DecodeParams, Request
from tests.unit.loops import Pair, request

B, BLOCKS = 8, 3


def rounds_of_a_block(pair: Pair, params: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """The rounds of each block, and counters of the whole answer. A prompt of one block takes no round of its own."""
    perfect = Pair(pair.target, pair.target)
    loop = perfect.loop(*(perfect.worker(role, block_size=B) for role in ("target", "draft")))
    params = {"max_tokens": B * BLOCKS, "ignore_eos": True, "seed": 3} | params
    [done] = generate_all(loop, [Request("r", request("r", B).prompt_ids, DecodeParams(**params))])
    assert done.stats.recovered == 0
    assert done.stats.rounds % BLOCKS == 0
    counted = done.stats.to_dict()
    return done.stats.rounds // BLOCKS, {name: counted[name] for name in ("accepted", "bonus", "fallback_tokens")}


@pytest.mark.parametrize(
    ("gamma", "fallback", "rounds", "bonus", "alone"),
    [
        (8, "redraft", 1, 0, 0),
        (4, "redraft", 2, 1, 0),  # 4 and a bonus, then the 3 that are left
        (3, "redraft", 2, 2, 0),
        (8, "target", 1, 0, 0),
        (4, "target", 2, 0, 0),  # 4 and 4: a bonus would leave 3, fewer than gamma, to three rounds of one token
        (3, "target", 4, 0, 2),  # 3 and 3, then the target alone
        (5, "target", 4, 0, 3),
    ],
)
@pytest.mark.parametrize("remasking", ["static", "sequential"])
def test_simsd(pair: Pair, gamma: int, fallback: str, rounds: int, bonus: int, alone: int, remasking: str) -> None:
    params = {"layout": "branches", "gamma": gamma, "fallback": fallback, "remasking": remasking}
    took, counted = rounds_of_a_block(pair, params)
    assert took == rounds
    accepted = B - bonus - alone
    assert counted == {
        "accepted": BLOCKS * accepted,
        "bonus": BLOCKS * bonus,
        "fallback_tokens": BLOCKS * alone,
    }


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("remasking", ["static", "sequential"])
@pytest.mark.parametrize(
    ("gamma", "steps", "rounds"),
    [
        (1, 8, 4),  # 1 and the target's next step, which is seen where the drafted token stands
        (2, 8, 3),  # 3, 3 and 2
        (4, 8, 2),  # 5 and 3
        (8, 8, 1),
        (1, 4, 4),  # two at a step: the drafted token and another
        (2, 4, 2),  # 2 and 2 in each round
    ],
)
def test_exact(pair: Pair, gamma: int, steps: int, rounds: int, remasking: str, temperature: float) -> None:
    """With rows for all states; the draft uses the target's noise, so it is never wrong at temperature 1 either."""
    params = {"method": "exact", "gamma": gamma, "steps": steps, "remasking": remasking, "row_budget": 2048}
    params["draft_steps"] = -(-gamma * steps // B)  # as many tokens from one context as the target takes
    took, counted = rounds_of_a_block(pair, params | {"temperature": temperature})
    assert took == rounds
    assert counted["accepted"] + counted["bonus"] == BLOCKS * B


@pytest.mark.parametrize("layout", ["paired", "branches"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_bonus_under_the_papers_rule(pair: Pair, layout: str, temperature: float) -> None:
    """Whatever stands: the draft of this pair is often wrong."""
    params = {"layout": layout, "gamma": 2, "temperature": temperature}
    counts = {}
    for fallback in ("target", "redraft"):
        loop = pair.loop(pair.worker("target"), pair.worker("draft"))
        done = generate_all(loop, [request(f"{n}", n, fallback=fallback, **params) for n in (5, 18, 40)])
        counts[fallback] = (sum(c.stats.bonus for c in done), sum(c.stats.fallback_tokens for c in done))
    assert counts["target"][0] == 0
    assert counts["target"][1] > 0
    assert counts["redraft"][0] > 0
    assert counts["redraft"][1] == 0
