"""The shapes of public checkpoints, as in their config.json, for uses that need no weights."""

import json
import tempfile
from pathlib import Path
from typing import Any

from simsd.models.checkpoint import load_model_config
from simsd.models.config import ModelConfig
from simsd.models.sdar import ARCHITECTURE

MASK_TOKEN_ID = 3
"""The mask token of the shipped tokenizer, which pairs without weights use."""


def _shape(layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, tied: bool) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURE],
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "mask_token_id": MASK_TOKEN_ID,
        "eos_token_id": [2],
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
        "head_dim": 128,
        "vocab_size": 151936,
    }


SHAPES = {
    "sdar-1.7b": _shape(28, 2048, 6144, 16, 8, tied=True),
    "sdar-4b": _shape(36, 2560, 9728, 32, 8, tied=True),
    "sdar-8b": _shape(36, 4096, 12288, 32, 8, tied=False),
    "tiny": _shape(2, 32, 48, 2, 1, tied=False) | {"head_dim": 16, "vocab_size": 1024},
}
"""The config.json of an SDAR checkpoint of each size, by name. `tiny` is for trying the commands."""


def write_config(directory: Path, shape: str) -> None:
    """Write the config.json of a shape into a directory."""
    (directory / "config.json").write_text(json.dumps(SHAPES[shape]), encoding="utf-8")


def config_of(shape: str) -> ModelConfig:
    """Return the configuration of a model of this shape."""
    with tempfile.TemporaryDirectory() as directory:
        write_config(Path(directory), shape)
        return load_model_config(Path(directory))
