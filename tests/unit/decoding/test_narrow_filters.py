"""Filters that leave one token make sampling greedy: the same text, rounds and events as at temperature 0."""

import dataclasses
import itertools
from typing import Any

import pytest

from simsd.in_process import generate_all
from simsd.messages.request import DecodeParams
from tests.unit.loops import Pair, request

NARROW = ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0})
METHODS: tuple[dict[str, Any], ...] = (
    {"method": "vanilla"},
    {"method": "simsd", "gamma": 3},
    {"method": "simsd", "layout": "branches", "gamma": 3, "fallback": "target", "draft_steps": 1},
    {"method": "simsd", "drafter": "self", "gamma": 2},
    {"method": "exact"},
    {"method": "exact", "drafter": "self"},
    {"method": "s2d2"},
    {"method": "s2d2", "routing": "score", "routing_cost": 1.5},
    {"method": "s2d2", "routing": "score", "routing_cost": 1.5, "routing_score": "entropy"},
)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: "-".join(map(str, method.values())))
def test_one_token_left_is_greedy(pair: Pair, method: dict[str, Any]) -> None:
    """At temperature 1, so that the distributions are those of greedy rows; each remasking, with each filter."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), max_running=16)
    remaskings: tuple[dict[str, Any], ...] = (
        {"remasking": "static", "steps": 3},
        {"remasking": "dynamic", "threshold": 0.2},
        {"remasking": "sequential"},
        {"remasking": "entropy", "entropy_bound": 4.0},
    )
    greedy = [request(f"{i}", 9 + i, **(method | remasking)) for i, remasking in enumerate(remaskings)]
    sampled = [
        dataclasses.replace(
            each,
            request_id=f"{each.request_id} {narrow}",
            params=dataclasses.replace(each.params, temperature=1.0, seed=3, **narrow),
        )
        for each, narrow in itertools.product(greedy, NARROW)
    ]
    want = [done for done in generate_all(loop, greedy) for _ in NARROW]
    counts = ("rounds", "drafted", "accepted", "recovered", "bonus", "fallback_tokens")
    for each, got, expected in zip(sampled, generate_all(loop, sampled), want, strict=True):
        assert got.token_ids == expected.token_ids, each.params
        for count in counts:
            assert getattr(got.stats, count) == getattr(expected.stats, count), (count, each.params)


def test_a_narrow_filter_does_not_make_a_position_sure(pair: Pair) -> None:
    """The model is not sure of any position, so each dynamic step reveals one, and an entropy step too."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    for remasking in ({"remasking": "dynamic", "threshold": 0.99}, {"remasking": "entropy", "entropy_bound": 0.01}):
        params = DecodeParams(method="vanilla", max_tokens=16, ignore_eos=True, temperature=1.0, top_k=1, **remasking)  # type: ignore[arg-type]
        [done] = generate_all(loop, [dataclasses.replace(request("r", 4), params=params)])
        assert done.stats.rounds == 16
