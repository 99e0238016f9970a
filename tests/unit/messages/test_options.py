"""Options are declared once, in DecodeParams and the settings; what is derived from them is whole and refuses alike."""

import dataclasses
import math
import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

from deployments.args import NOT_HERE, ServeArgs
from deployments.ingress.schemas import ChatRequest, SimSDOptions
from deployments.options import with_options
from simsd.cli.options import add_decode_options
from simsd.config import LoopConfig, WorkerConfig
from simsd.errors import ConfigError, RequestError
from simsd.messages.options import Option, check_options, option, options_of
from simsd.messages.request import DecodeParams

OPTIONS = options_of(DecodeParams)
MESSAGES = [{"role": "user", "content": "Hi"}]


def outside(option: Option) -> list[Any]:
    """Values of the right type beyond the bounds, and one that is no word of the option's."""
    if option.choices:
        return ["magic"]
    step = 1 if option.kind is int else 0.001
    below = [] if option.low is None else [option.low - step]
    return (
        below + ([] if option.high is None else [option.high + step]) + ([] if option.above is None else [option.above])
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "magic"}, "method must be one of vanilla, simsd, exact, s2d2; got 'magic'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1; got 0"),
        ({"temperature": 101.5}, "temperature must be between 0 and 100; got 101.5"),
        ({"temperature": math.nan}, "temperature must be between 0 and 100; got nan"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1; got 0.0"),
        ({"top_p": math.nan}, "top_p must be above 0 and at most 1; got nan"),
        ({"seed": 2**63}, "seed must be between -9223372036854775808 and 9223372036854775807; got 9223372036854775808"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be between 0 and 8; got 9"),
        ({"logit_bias": ((1, 2.0), (3, -100.5))}, "logit_bias must be between -100.0 and 100.0; got -100.5"),
        ({"stop": ("a",) * 5}, "stop takes up to 4 non-empty strings"),
        ({"stop": ("",)}, "stop takes up to 4 non-empty strings"),
        ({"stop": "ab"}, "stop must be a list; got 'ab'"),
        ({"gamma": 4.0}, "gamma must be a whole number; got 4.0"),
        ({"steps": True}, "steps must be a whole number; got True"),
        ({"threshold": "0.5"}, "threshold must be a number; got '0.5'"),
        ({"threshold": True}, "threshold must be a number; got True"),
        ({"adaptive": 1}, "adaptive must be true or false; got 1"),
        (
            {"fallback": "target", "drafter": "self"},
            "fallback must be redraft with drafter self, with which no draft model could draft again; got 'target'",
        ),
        (
            {"adaptive": True, "drafter": "self", "method": "exact"},
            "adaptive must be false with drafter self, which has no draft forwards to choose; got True",
        ),
        (
            {"fallback": "target", "adaptive": True},
            "fallback must be redraft with adaptive, which chooses when the target goes on alone; got 'target'",
        ),
    ],
)
def test_errors_name_the_field_and_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=f"^{re.escape(message)}$") as caught:
        DecodeParams(**given)
    assert caught.value.param == next(iter(given))


def test_numbers_of_other_types_are_numbers() -> None:
    params = DecodeParams(temperature=1, gamma=np.int64(4), threshold=np.float32(0.5))  # type: ignore[arg-type]
    assert (params.temperature, params.gamma, params.threshold) == (1, 4, 0.5)


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_the_default_is_allowed_and_nothing_out_of_bounds_is(option: Option) -> None:
    """By the dataclass, and by a body and the server's arguments where they have the option."""
    option.check(option.default)
    for value in outside(option):
        with pytest.raises(RequestError, match=rf"^{option.name} must be "):
            DecodeParams(**{option.name: value})
        if option.place != "process":
            asked = {option.name: value}
            body = asked if option.place == "body" else {"simsd": asked}
            with pytest.raises(ValidationError, match=option.name):
                ChatRequest.model_validate({"messages": MESSAGES, **body})
        if option.name in ServeArgs.model_fields:
            with pytest.raises(ValidationError, match=option.name):
                ServeArgs.model_validate({option.name: value})


def test_bodies_have_every_option_but_those_of_the_process() -> None:
    places = {name: option.place for name, option in OPTIONS.items()}
    assert SimSDOptions.model_fields.keys() == {name for name in places if places[name] == "simsd"} | {
        "events",
        "preset",
    }
    assert {name for name in places if places[name] == "body"} <= ChatRequest.model_fields.keys()
    assert not {name for name in places if places[name] == "process"} & ChatRequest.model_fields.keys()


def test_the_server_has_every_setting_or_says_why_not() -> None:
    every = {*WorkerConfig.model_fields, *LoopConfig.model_fields, *OPTIONS}
    assert every - ServeArgs.model_fields.keys() == NOT_HERE.keys()
    assert all(NOT_HERE.values())


def other(name: str, default: Any) -> Any:
    """An allowed value that is not the default."""
    words = {"dtype": "float16", "device": "cuda", "runner": "graph", "block_size": 8}
    if name in words:
        return words[name]
    return not default if isinstance(default, bool) else (default or 0) + 64


@pytest.mark.parametrize("kind", [WorkerConfig, LoopConfig])
def test_the_server_passes_every_setting_on(kind: type[WorkerConfig] | type[LoopConfig]) -> None:
    names = [name for name in kind.model_fields if name not in NOT_HERE]
    given = {name: other(name, kind.model_fields[name].default) for name in names}
    args = ServeArgs.model_validate(given)
    found = args.worker_config("target") if kind is WorkerConfig else args.loop_config()
    assert found is not None
    assert {name: getattr(found, name) for name in names} == given
    if kind is WorkerConfig:
        draft = args.worker_config("draft")
        assert draft is not None
        assert (draft.role, draft.tensor_parallel, draft.kv_tokens) == ("draft", 1, given["kv_tokens"])


def test_the_servers_defaults_are_those_of_a_request_but_for_two() -> None:
    defaults, own = ServeArgs(), DecodeParams()
    differing = {n for n in OPTIONS.keys() - NOT_HERE.keys() if getattr(defaults, n) != getattr(own, n)}
    assert differing == {"method", "max_tokens"}
    assert defaults.decode_params() == dataclasses.replace(own, max_tokens=512)


def test_an_option_is_declared_in_one_place() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Params:
        span: int = option(2, "blocks drafted a round", low=1, high=4)
        order: Literal["left", "sure"] = option("sure", "which comes first")

        def __post_init__(self) -> None:
            check_options(self)

    @with_options(options_of(Params).values(), may_be_absent=True)
    class Derived(BaseModel):
        """Of a test."""

    assert Params(span=4, order="left").span == 4
    with pytest.raises(RequestError, match=r"^span must be between 1 and 4; got 5$"):
        Params(span=5)
    assert (Derived().span, Derived(span=3).span) == (None, 3)  # type: ignore[attr-defined, call-arg]
    with pytest.raises(ValidationError, match="span"):
        Derived(span=5)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="order"):
        Derived(order="right")  # type: ignore[call-arg]
    assert Derived.model_fields["span"].description == "blocks drafted a round"
    assert (Derived.__name__, Derived.__doc__, Derived.__module__) == ("Derived", "Of a test.", __name__)


def test_help_of_the_command_line_is_that_of_the_option() -> None:
    parser = ArgumentParser()
    add_decode_options(parser)
    text = " ".join(parser.format_help().split())
    for one in OPTIONS.values():
        assert f"--{one.name.replace('_', '-')}" in text
        assert one.help.split(";")[0] in text.replace("- ", "-")


def test_the_documents_name_every_option_of_a_body() -> None:
    text = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
    rows = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert not [name for name, one in OPTIONS.items() if one.place != "process" and f"`{name}`" not in rows]


def test_options_of_another_method_are_passed_over() -> None:
    """So that the same settings can be tried with one method after the other."""
    for method in ("vanilla", "s2d2"):
        given = {"method": method, "drafter": "self", "fallback": "target", "adaptive": True, "gamma": 2}
        params = DecodeParams(**given)  # type: ignore[arg-type]
        assert {name: getattr(params, name) for name in given} == given
    assert DecodeParams(method="exact", drafter="self", fallback="target").fallback == "target"


def test_a_default_that_can_do_nothing_beside_the_request_is_left_out() -> None:
    """But a server does not start with one, and no request may ask for it."""
    paper = ServeArgs(fallback="target", gamma=3, draft_steps=1)
    assert paper.decode_params().fallback == "target"
    own = paper.decode_params(drafter="self")
    assert (own.drafter, own.fallback, own.gamma) == ("self", "redraft", 3)
    assert ServeArgs(adaptive=True).decode_params(drafter="self").adaptive is False
    assert ServeArgs(adaptive=True).decode_params(temperature=1.0).adaptive is True
    with pytest.raises(RequestError, match="fallback must be redraft"):
        ServeArgs(drafter="self").decode_params(fallback="target")
    with pytest.raises(RequestError, match="fallback must be redraft"):
        paper.decode_params(drafter="self", fallback="target")
    with pytest.raises(ConfigError, match="fallback must be redraft with drafter self"):
        ServeArgs(drafter="self", fallback="target")
