"""A checkpoint's JSON files. Each value is read by itself, and refused by name if its type or range is wrong."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from simsd.errors import CheckpointError

SHOWN_CHARS = 100
"""How many characters of a value an error shows."""
ROPE_KEYS = ("rope_scaling", "rope_parameters")
"""The keys under which versions of transformers describe a model's RoPE, the older one first."""
DEFAULT_ROPE = {"type": ("default",), "rope_type": ("default",), "factor": (1,), "partial_rotary_factor": (1,)}
"""What such a description may hold beside the base: for each key, the values that leave RoPE as it is."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. `CheckpointError` if the file cannot be read or holds anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return found


class ConfigFile:
    """One JSON file of a checkpoint, with a method for each kind of value.

    Every error is a `CheckpointError` that names the file, the key, what is allowed and what was found. A key whose
    value is null counts as absent, because transformers writes settings that a model does not use as null.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.values = path, read_json(path)

    @property
    def architecture(self) -> str:
        """The class that `architectures` names; it must name exactly one."""
        names = self.values.get("architectures")
        if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
            self.refuse("architectures", "must name exactly one class")
        return names[0]

    def require(self, keys: Collection[str]) -> None:
        """Check that all of these keys are present and have a value."""
        if missing := [key for key in keys if key not in self.values]:
            raise CheckpointError(f"{self.path}: lacks {', '.join(missing)}")
        for key in keys:
            if self.values[key] is None:
                self.refuse(key, "must have a value")

    def integer(self, key: str, low: int = 1, high: int | None = None) -> int | None:
        """Return a whole number in [low, high], or None if the key is absent. "4", 4.0 and true are refused."""
        value = self.values.get(key)
        if value is None:
            return None
        if type(value) is not int or value < low or (high is not None and value > high):
            self.refuse(key, "must be a whole number " + (f"from {low}" if high is None else f"from {low} to {high}"))
        return value

    def positive(self, key: str) -> float | None:
        """Return a finite number above 0, or None if the key is absent."""
        return self._positive(key, self.values.get(key))

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false. "false", 0 and 1 are refused."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, "must be true or false")
        return value

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...] | None:
        """Return one id or a list of ids, each in [0, vocab_size), as a tuple; None if the key is absent."""
        value = self.values.get(key)
        if value is None:
            return None
        ids = value if isinstance(value, list) else [value]
        if any(type(each) is not int or not 0 <= each < vocab_size for each in ids):
            self.refuse(key, f"must be a token id or a list of them, each from 0 to {vocab_size - 1}")
        return tuple(ids)

    def neutral(self, table: Mapping[str, Collection[Any]]) -> None:
        """Check that settings which are not supported are absent, or have a value that does not change the result.

        table: for each key, the values that do not change the result.
        """
        for key, allowed in table.items():
            if not _is_neutral(self.values.get(key), allowed):
                wanted = " or ".join(json.dumps(each) for each in allowed)
                self.refuse(key, f"is supported as {wanted} only" if allowed else "is not supported")

    def full_attention(self, layers: int) -> None:
        """Check that no layer uses a sliding window or any other kind of attention than full attention."""
        window = self.values.get("sliding_window")
        if self.flag("use_sliding_window", default=window is not None):
            key = "use_sliding_window" if window is None else "sliding_window"
            self.refuse(key, "is in force, which is not supported")
        kinds = self.values.get("layer_types")
        if kinds is not None and kinds != ["full_attention"] * layers:
            self.refuse("layer_types", f"must be full_attention for each of the {layers} layers")

    def rope_theta(self, default: float) -> float:
        """Return the base of the default RoPE. Any other RoPE is refused.

        The base may be a setting of its own, be inside `rope_scaling` or `rope_parameters`, or be inside these once for
        each kind of attention. If it is written several times, all must agree.
        """
        bases = {} if (base := self.positive("rope_theta")) is None else {"rope_theta": base}
        for name, rope in self._rope_descriptions():
            for key, value in rope.items():
                if key != "rope_theta" and not _is_neutral(value, DEFAULT_ROPE.get(key, ())):
                    message = f"{name} {_written(rope)} is not supported; only the default RoPE is"
                    raise CheckpointError(f"{self.path}: {message}")
            base = self._positive(f"{name}.rope_theta", rope.get("rope_theta"))
            if base is not None:
                bases[f"{name}.rope_theta"] = base
        if len(set(bases.values())) > 1:
            found = " and ".join(f"{key} is {value:g}" for key, value in bases.items())
            raise CheckpointError(f"{self.path}: the base of RoPE must be one number; {found}")
        return next(iter(bases.values()), default)

    def _rope_descriptions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each description of RoPE with its name. One that is given for each kind of attention is split up."""
        for key in ROPE_KEYS:
            rope = self.values.get(key)
            if rope is None:
                continue
            if not isinstance(rope, dict):
                self.refuse(key, "must be an object")
            if rope and all(isinstance(value, dict) for value in rope.values()):
                yield from ((f"{key}.{kind}", value) for kind, value in rope.items())
            else:
                yield key, rope

    def _positive(self, name: str, value: Any) -> float | None:
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise CheckpointError(f"{self.path}: {name} must be a number above 0; it is {_written(value)}")
        return float(value)

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the `CheckpointError` "FILE: KEY <why>; it is VALUE"."""
        raise CheckpointError(f"{self.path}: {key} {why}; it is {_written(self.values.get(key))}")


def _written(value: Any) -> str:
    """Return a value as the file writes it, cut if it is long."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _is_neutral(value: Any, allowed: Collection[Any]) -> bool:
    """Whether a value is null or among those allowed. True and 1 are different values."""
    return value is None or any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed)
