"""Presets set what they say, and nothing that a request sets itself."""

from typing import Any, get_args

import pytest

from deployments.args import ServeArgs
from deployments.ingress.schemas import ChatRequest
from simsd.errors import RequestError
from simsd.in_process import generate_all
from simsd.messages.options import options_of
from simsd.messages.presets import PRESETS, Preset, on_top_of
from simsd.messages.request import DecodeParams, Request
from tests.unit.loops import Pair, request

B = 8
TABLE: dict[str, dict[str, Any]] = {
    "paper": {
        "method": "simsd",
        "drafter": "model",
        "layout": "paired",
        "remasking": "static",
        "gamma": B,
        "draft_steps": B,
        "fallback": "target",
        "adaptive": False,
    },
    "fast": {"method": "simsd", "drafter": "model", "remasking": "sequential", "draft_steps": 1, "adaptive": True},
    "lossless": {"method": "exact", "remasking": "dynamic", "threshold": 0.7, "steps": 2},
    "baseline": {"method": "vanilla", "remasking": "static", "steps": B},
}
SERVER = ServeArgs(
    method="s2d2",
    remasking="dynamic",
    threshold=0.7,
    steps=2,
    gamma=3,
    draft_steps=2,
    layout="branches",
    fallback="target",
    adaptive=False,
)
"""Defaults that differ from what most presets say."""


@pytest.mark.parametrize("preset", get_args(Preset))
def test_a_preset_goes_before_the_servers_defaults(preset: str) -> None:
    params = SERVER.decode_params(preset=preset, max_tokens=9).resolve(B)
    assert {name: getattr(params, name) for name in TABLE[preset]} == TABLE[preset]
    assert params.max_tokens == 9


def test_what_a_request_sets_goes_before_its_preset() -> None:
    params = SERVER.decode_params(preset="paper", gamma=2, temperature=0.5)
    assert (params.gamma, params.temperature, params.fallback) == (2, 0.5, "target")
    params = SERVER.decode_params(preset="fast", adaptive=False, draft_steps=0)
    assert (params.method, params.adaptive, params.draft_steps) == ("simsd", False, 0)
    own = SERVER.decode_params(preset="paper", drafter="self")
    assert (own.drafter, own.fallback) == ("self", "redraft"), "fallback could do nothing"
    assert SERVER.decode_params(preset="fast", drafter="self").adaptive is False
    with pytest.raises(RequestError, match="fallback must be redraft with adaptive"):
        SERVER.decode_params(preset="fast", fallback="target")


def test_the_paper_leaves_nothing_of_its_algorithm_to_the_server() -> None:
    """An option that is new belongs into the preset, or here with those that cannot change it."""
    other_methods = {"row_budget", "routing", "routing_score", "routing_cost", "threshold", "entropy_bound"}
    options = {name for name, option in options_of(DecodeParams).items() if option.place == "simsd"}
    assert PRESETS["paper"].keys() == options - other_methods


@pytest.mark.parametrize("preset", ["", "quick", 3, ["paper"]])
def test_an_unknown_preset_is_refused(preset: Any) -> None:
    with pytest.raises(RequestError, match="preset must be one of paper, fast, lossless, baseline; got ") as caught:
        on_top_of({}, {"preset": preset})
    assert caught.value.param == "preset"


def test_a_body_names_a_preset() -> None:
    body = ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hi"}], "simsd": {"preset": "paper"}})
    assert body.requested()["preset"] == "paper"
    assert on_top_of({"gamma": 2}, {"preset": "lossless"}) == {"gamma": 2, "method": "exact"}


def test_answers_by_preset(pair: Pair) -> None:
    """lossless has vanilla's text with the defaults' remasking; paper never takes a bonus; baseline drafts nothing."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    prompt = request("p", 9).prompt_ids  # a round for two whole blocks; 23 tokens more fill the last one
    defaults = {"max_tokens": 23, "ignore_eos": True, "temperature": 1.0, "remasking": "dynamic", "threshold": 0.3}
    asked = [{"preset": preset} for preset in PRESETS] + [{"method": "vanilla"}]
    requests = [Request(str(i), prompt, DecodeParams(**on_top_of(defaults, each))) for i, each in enumerate(asked)]
    paper, fast, lossless, baseline, vanilla = generate_all(loop, requests)
    assert lossless.token_ids == vanilla.token_ids
    assert baseline.token_ids != vanilla.token_ids
    assert (baseline.stats.rounds, baseline.stats.drafted) == (23 + 1, 0)
    assert (paper.stats.bonus, paper.stats.draft_forwards) == (0, paper.stats.drafted + 1)
    assert paper.stats.fallback_tokens > 0
    assert len(fast.token_ids) == 23
