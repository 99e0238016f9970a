"""What a checkpoint's config.json says, typed."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simsd.errors import CheckpointError, ConfigError

REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "max_position_embeddings",
    "rms_norm_eps",
)


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model. `block_size`, `mask_token_id` are None where neither file nor name tells them."""

    architecture: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    block_size: int | None
    mask_token_id: int | None
    eos_token_ids: tuple[int, ...]

    def share(self, ranks: int) -> "ModelConfig":
        """What one of `ranks` has of it; `ConfigError` unless all get whole heads and the same part of the rest."""
        parts = {}
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            size = getattr(self, name)
            if size % ranks:
                raise ConfigError(f"tensor_parallel {ranks}: the model's {name} {size} cannot be shared equally")
            parts[name] = size // ranks
        return replace(self, **parts)

    @property
    def parameters(self) -> int:
        """Number of weights (embedding counted once where tied)."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_attention_heads + self.num_key_value_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * (self.hidden_size + self.head_dim)
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + embeddings + self.hidden_size


def block_size_from_name(name: str) -> int | None:
    """SDAR's public names end in -b8 ... -b64; without a suffix the block size is 4. None for other names."""
    if "SDAR" not in name:
        return None
    match = re.search(r"-b(\d+)/*$", name)
    return int(match.group(1)) if match else 4


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; `CheckpointError` if it is none."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return found


def _as_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)


def load_model_config(directory: Path, name: str = "") -> ModelConfig:
    """Read config.json and generation_config.json of a checkpoint directory.

    `name` is the hub name it came from, which tells the block size where the file does not.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{directory}: no config.json; a checkpoint directory needs one")
    raw = read_json(path)
    missing = [key for key in REQUIRED if key not in raw]
    if missing:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}")
    architectures = raw.get("architectures") or []
    if len(architectures) != 1:
        raise CheckpointError(f"{path}: architectures must name exactly one class, it says {architectures}")
    rope = raw.get("rope_parameters") or {}
    if raw.get("rope_scaling") or rope.get("rope_type", "default") != "default":
        found = raw.get("rope_scaling") or rope
        raise CheckpointError(f"{path}: RoPE scaling {found} is not supported; only the default RoPE is")
    generation = directory / "generation_config.json"
    eos = read_json(generation).get("eos_token_id") if generation.is_file() else None
    name = name.rstrip("/") or directory.name
    block_size = raw.get("block_size") or block_size_from_name(name)
    mask_token_id = raw.get("mask_token_id")
    if mask_token_id is None and "SDAR" in name:
        mask_token_id = 151669
    return ModelConfig(
        architecture=architectures[0],
        head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
        rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        block_size=block_size,
        mask_token_id=mask_token_id,
        eos_token_ids=_as_ids(eos if eos is not None else raw.get("eos_token_id")),
        **{key: raw[key] for key in REQUIRED},
    )
