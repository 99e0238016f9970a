"""Presets: decoding options that belong together, under a name (README says which to take)."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from simsd.errors import RequestError
from simsd.messages.options import options_of
from simsd.messages.request import DecodeParams, idle

Preset = Literal["paper", "fast", "lossless", "baseline"]

PRESET_HELP = "options that belong together; those that are given beside it go before its own"

PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {
        "method": "simsd",
        "drafter": "model",
        "layout": "paired",
        "remasking": "static",
        "gamma": 0,
        "draft_steps": 0,
        "lookahead": 0,
        "steps": 0,
        "fallback": "target",
        "adaptive": False,
    },
    "fast": {
        "method": "simsd",
        "drafter": "model",
        "layout": "paired",
        "remasking": "sequential",
        "gamma": 0,
        "draft_steps": 1,
        "fallback": "redraft",
        "adaptive": True,
    },
    "lossless": {"method": "exact"},
    "baseline": {"method": "vanilla", "remasking": "static", "steps": 0},
}
"""What each preset sets; options that it leaves out keep their defaults. A gamma, `draft_steps` or
`steps` of 0 depends on the block size (`resolve`).

paper: the paper's own algorithm: the draft's order, gamma = B, a draft forward for each token, no bonus. fast: from
left to right, with one draft forward or none, by what is fastest. lossless: the text of `vanilla` with whatever
remasking and steps are the default. baseline: the target alone, one token a step.
"""


def on_top_of(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `DecodeParams` that are `given`, and those of `defaults` for the others.

    given: may have a `preset`, whose options go on top of the defaults and below the others that are given. An unknown
    one raises a `RequestError`.
    Options of a lower layer that could not do anything beside those above are left out, since `DecodeParams` would
    refuse them.
    """
    own = {name: value for name, value in given.items() if name != "preset"}
    return _layered(_layered(defaults, _preset(given.get("preset"))), own)


def _preset(name: Any) -> dict[str, Any]:
    if name is None:
        return {}
    if name not in get_args(Preset):
        raise RequestError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}", "preset")
    found: Preset = name
    return PRESETS[found]


def _layered(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    values = {**below, **above}
    known = {name: option.default for name, option in options_of(DecodeParams).items()} | values
    left_out = idle(known["method"], known["drafter"], known["adaptive"]).keys() - above.keys()
    return {name: value for name, value in values.items() if name not in left_out}
