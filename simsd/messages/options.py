"""Options, each declared once: a dataclass field whose metadata hold its help, its bounds and its place.

The allowed values of an option are those of its `Literal` type, if it has one. Command lines, the server's arguments
and the bodies of the HTTP API are derived from `options_of`. A dataclass checks its own values with `check_options`.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args, get_origin

from simsd.errors import RequestError

T = TypeVar("T")
Place = Literal["body", "simsd", "process"]
"""Where a request over HTTP carries an option. `body`: in its body, under the name that other servers use too.
`simsd`: in the body's `simsd` object. `process`: nowhere, because only code in the same process sets it."""

KINDS: dict[Any, tuple[str, Any]] = {
    str: ("text", (str,)),
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int, Integral)),
    float: ("a number", (float, Real)),
    tuple: ("a list", (tuple, list)),
}
"""For each type of an option: what a value must be, in words, and the types that are accepted. The abstract types
accept NumPy's numbers, too."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a dataclass.

    `low` and `high` are inclusive bounds, and `above` is an exclusive lower bound; None stands for no bound. `choices`
    are the allowed values of an option with a `Literal` type, and empty for any other.
    """

    name: str
    kind: Any
    default: Any
    choices: tuple[str, ...]
    help: str
    low: float | None
    high: float | None
    above: float | None
    place: Place
    accepts: tuple[str, Any]
    """What a value must be, in words, and the types that are accepted."""

    def check(self, value: Any) -> None:
        """Raise a `RequestError` that names the option and what is allowed, unless `value` is allowed."""
        if self.choices:
            if value not in self.choices:
                raise RequestError(f"{self.name} must be one of {', '.join(self.choices)}; got {value!r}", self.name)
        else:
            noun, types = self.accepts
            if not isinstance(value, types) or (isinstance(value, bool) and self.kind is not bool):
                raise RequestError(f"{self.name} must be {noun}; got {value!r}", self.name)
            check_range(self.name, value, self.low, self.high, self.above)


def option(
    default: T,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    place: Place = "simsd",
) -> T:
    """Declare a dataclass field that is an `Option`. `help` is read by people, in a list of options."""
    about = {"help": help, "low": low, "high": high, "above": above, "place": place}
    return dataclasses.field(default=default, metadata=about)


@cache
def options_of(cls: type) -> dict[str, Option]:
    """Return the options of a dataclass by name, in the order of its fields."""
    found = {}
    for field in dataclasses.fields(cls):
        kind = get_origin(field.type) or field.type
        choices = get_args(field.type) if kind is Literal else ()
        accepts = KINDS[str if kind is Literal else kind]
        found[field.name] = Option(field.name, field.type, field.default, choices, accepts=accepts, **field.metadata)
    return found


@cache
def _with_defaults(cls: type) -> tuple[tuple[str, Any, Option], ...]:
    return tuple((name, option.default, option) for name, option in options_of(cls).items())


def check_options(values: object) -> None:
    """Check every value of a dataclass of options. The first one that is not allowed raises a `RequestError`."""
    cls: type = type(values)
    for name, default, option in _with_defaults(cls):
        value = getattr(values, name)
        if value is not default:  # Most values are defaults, and this check runs often.
            option.check(value)


def check_range(
    name: str, value: float, low: float | None, high: float | None = None, above: float | None = None
) -> None:
    """Raise a `RequestError` that names the field and its bounds unless `value` lies within them. NaN never does."""
    if above is not None:
        if not (value > above and (high is None or value <= high)):
            upper = "" if high is None else f" and at most {high}"
            raise RequestError(f"{name} must be above {above}{upper}; got {value}", name)
    elif low is not None and not (value >= low and (high is None or value <= high)):
        allowed = f"at least {low}" if high is None else f"between {low} and {high}"
        raise RequestError(f"{name} must be {allowed}; got {value}", name)
