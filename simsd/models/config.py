"""The shape of a model, as its family reads it from a checkpoint. `simsd plan` uses it without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from simsd.config import MAX_BLOCK_SIZE
from simsd.errors import ConfigError
from simsd.models.config_file import ConfigFile

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "max_position_embeddings",
)
DEFAULT_ROPE_THETA = 10000.0


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model. A family that needs more fields has a subclass.

    `block_size` and `mask_token_id` are None if neither the files nor the checkpoint's name tell them. named: the
    fields that only the name tells.
    """

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
    named: tuple[str, ...] = ()

    def share(self, ranks: int) -> "ModelConfig":
        """Return the shape of one rank's part. `ConfigError` unless all ranks get whole heads and equal parts."""
        parts = {}
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            size = getattr(self, name)
            if size % ranks:
                raise ConfigError(f"tensor_parallel {ranks}: the model's {name} {size} cannot be shared equally")
            parts[name] = size // ranks
        return replace(self, **parts)

    @property
    def parameters(self) -> int:
        """The number of weights. A tied embedding is counted once."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_attention_heads + self.num_key_value_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * (self.hidden_size + self.head_dim)
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + embeddings + self.hidden_size


def standard_fields(
    config: ConfigFile, generation: ConfigFile | None, keys: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Read the fields of a `ModelConfig` from files that follow transformers. A family may change them afterwards.

    keys: the key in config.json of each field that the family writes under another name. The end-of-sequence ids are
    those of generation_config.json, or else of config.json. `mask_token_id` and `block_size` are None if absent.
    `CheckpointError` for a setting that is missing or not allowed.
    """
    keys = {name: (keys or {}).get(name, name) for name in ModelConfig.__dataclass_fields__}
    config.require([keys[name] for name in (*SIZES, "rms_norm_eps")])
    fields: dict[str, Any] = {name: config.integer(keys[name]) for name in SIZES}
    heads, kv_heads = fields["num_attention_heads"], fields["num_key_value_heads"]
    if heads % kv_heads:
        config.refuse(keys["num_key_value_heads"], f"must divide {keys['num_attention_heads']} {heads}")
    head_dim = config.integer(keys["head_dim"])
    if head_dim is None:
        if fields["hidden_size"] % heads:
            config.refuse(keys["hidden_size"], f"must be a multiple of {keys['num_attention_heads']} {heads}")
        head_dim = fields["hidden_size"] // heads
    eos = generation.token_ids("eos_token_id", fields["vocab_size"]) if generation else None
    if eos is None:
        eos = config.token_ids("eos_token_id", fields["vocab_size"]) or ()
    block_size = keys["block_size"]
    if block_size in config.values and config.values[block_size] is None:
        config.refuse(block_size, f"must be a whole number from 1 to {MAX_BLOCK_SIZE}, or absent")
    return fields | {
        "architecture": config.architecture,
        "head_dim": head_dim,
        "rms_norm_eps": config.positive(keys["rms_norm_eps"]),
        "rope_theta": config.rope_theta(DEFAULT_ROPE_THETA),
        "tie_word_embeddings": config.flag(keys["tie_word_embeddings"], default=False),
        "block_size": config.integer(block_size, high=MAX_BLOCK_SIZE),
        "mask_token_id": config.integer(keys["mask_token_id"], low=0),
        "eos_token_ids": eos,
    }
