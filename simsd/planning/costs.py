"""What a forward costs: a roofline from data sheets, or what was measured. docs/capacity.md derives the formulas."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simsd.errors import ConfigError
from simsd.models.config import ModelConfig


def require(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raise a `ConfigError` that names the value and its bounds unless it lies within them."""
    if not low <= value <= high:  # NaN is refused, too.
        allowed = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
        raise ConfigError(f"{name} must be {allowed}; got {value:g}")


@dataclass(frozen=True, slots=True)
class Gpu:
    """The figures of a GPU's data sheet.

    bandwidth: of the memory, in bytes/s. flops: dense, in bfloat16, in FLOP/s. memory: in bytes.
    """

    bandwidth: float
    flops: float
    memory: float

    def __post_init__(self) -> None:
        for name in ("bandwidth", "flops", "memory"):
            require(name, getattr(self, name), 1)


GPUS = {
    "a100": Gpu(2.039e12, 312e12, 80e9),
    "b200": Gpu(8.0e12, 2250e12, 180e9),
    "h100": Gpu(3.35e12, 989e12, 80e9),
    "h200": Gpu(4.8e12, 989e12, 141e9),
    "l4": Gpu(0.3e12, 121e12, 24e9),
    "l40s": Gpu(0.864e12, 362e12, 48e9),
}


class ForwardCost(Protocol):
    """The cost of a forward in seconds.

    rows: of all `sequences` together. logits: the number of rows that want logits. context: cached tokens of each
    sequence.
    """

    def parts(self, rows: float, logits: float, sequences: float, context: float) -> dict[str, float]:
        """Return what the forward's time is made of, in seconds. The largest part is what bounds it."""

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """A forward takes as long as the longest of reading memory, multiplying and launching kernels, which overlap.

    weight_bytes: bytes of a weight, and of a number in the KV. bandwidth_share, flops_share: the shares of the data
    sheet's figures that are reached. launch_s: seconds to launch the kernels of one layer.
    """

    model: ModelConfig
    gpu: Gpu
    weight_bytes: int = 2
    bandwidth_share: float = 0.7
    flops_share: float = 0.5
    launch_s: float = 250e-6

    def __post_init__(self) -> None:
        require("bandwidth_share", self.bandwidth_share, 0.01, 1)
        require("flops_share", self.flops_share, 0.01, 1)
        require("launch_s", self.launch_s, 0)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all weights."""
        return self.model.parameters * self.weight_bytes

    @property
    def kv_bytes(self) -> int:
        """The bytes of one token's KV: a key and a value in every layer."""
        shape = self.model
        return 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * self.weight_bytes

    @property
    def layer_weights(self) -> int:
        """The number of weights that every row is multiplied with: all but the embedding and the head."""
        shape = self.model
        return shape.parameters - shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)

    def read_bytes(self, sequences: float, context: float) -> float:
        """Return the bytes that a forward reads: layers and head once, and the KV of each sequence once."""
        head = self.model.vocab_size * self.model.hidden_size
        return (self.layer_weights + head) * self.weight_bytes + sequences * context * self.kv_bytes

    def operations(self, rows: float, logits: float, context: float) -> float:
        """Return the FLOPs of a forward: two for each weight and row, and attention's two products over the context."""
        shape = self.model
        attention = 4 * shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim * context
        return rows * (2 * self.layer_weights + attention) + logits * 2 * shape.vocab_size * shape.hidden_size

    def parts(self, rows: float, logits: float, sequences: float, context: float) -> dict[str, float]:
        return {
            "reading": self.read_bytes(sequences, context) / (self.gpu.bandwidth * self.bandwidth_share),
            "multiplying": self.operations(rows, logits, context) / (self.gpu.flops * self.flops_share),
            "launching": self.model.num_hidden_layers * self.launch_s,
        }

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float:
        return max(self.parts(rows, logits, sequences, context).values())


@dataclass(frozen=True, slots=True)
class Fitted:
    """The cost of a forward as a line through measured ones: `forward_s` and, for each row, `row_s`, in seconds."""

    forward_s: float
    row_s: float

    @classmethod
    def to(cls, measured: Sequence[tuple[int, int, float]]) -> "Fitted":
        """Fit a line by least squares to calls of (forwards, rows, seconds). Neither part is below 0.

        `ConfigError` for less than two calls.
        """
        if len(measured) < 2:
            raise ConfigError(f"a line needs two measured calls; there are {len(measured)}")
        counts = np.array([(forwards, rows) for forwards, rows, _ in measured], dtype=float)
        seconds = np.array([seconds for _, _, seconds in measured])
        forward_s, row_s = np.linalg.lstsq(counts, seconds, rcond=None)[0]
        if forward_s < 0:
            forward_s, row_s = 0.0, counts[:, 1] @ seconds / (counts[:, 1] @ counts[:, 1])
        elif row_s < 0:
            forward_s, row_s = counts[:, 0] @ seconds / (counts[:, 0] @ counts[:, 0]), 0.0
        return cls(float(forward_s), float(row_s))

    def parts(self, rows: float, logits: float, sequences: float, context: float) -> dict[str, float]:
        return {"a forward's fixed cost": self.forward_s, "rows": self.row_s * rows}

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float:
        return self.forward_s + self.row_s * rows


@dataclass(frozen=True, slots=True)
class Curve:
    """The cost of a forward by its rows as it was measured, with lines between the points.

    rows: ascending. times: seconds of a forward. Below the first point a forward costs what it costs there; beyond the
    last the line through the first and the last point goes on.
    """

    rows: tuple[float, ...]
    times: tuple[float, ...]

    @classmethod
    def of(cls, measured: Sequence[tuple[int, int, float]], width: float = 1.15) -> "Curve":
        """Draw the curve through calls of (forwards, rows, seconds).

        Calls whose forwards have about the same rows, within the factor `width`, make one point: their mean rows, and
        the median of their times. `ConfigError` for less than two points.
        """
        calls = sorted((rows / forwards, seconds / forwards) for forwards, rows, seconds in measured)
        groups: list[list[tuple[float, float]]] = []
        for call in calls:
            if groups and call[0] <= width * groups[-1][0][0]:
                groups[-1].append(call)
            else:
                groups.append([call])
        if len(groups) < 2:
            raise ConfigError(f"a curve needs forwards of two numbers of rows; there is {len(groups)}")
        rows = tuple(float(np.mean([rows for rows, _ in group])) for group in groups)
        return cls(rows, tuple(float(np.median([seconds for _, seconds in group])) for group in groups))

    def parts(self, rows: float, logits: float, sequences: float, context: float) -> dict[str, float]:
        seconds = self.seconds(rows, logits, sequences, context)
        fixed = min(seconds, self.times[0])
        return {"a forward's fixed cost": fixed, "rows": seconds - fixed}

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float:
        slope = max(0.0, (self.times[-1] - self.times[0]) / (self.rows[-1] - self.rows[0]))
        return float(np.interp(rows, self.rows, self.times)) + max(0.0, rows - self.rows[-1]) * slope
