"""Small random SDAR checkpoints in the real format, written tensor by tensor under the checkpoint's own names."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.unit import toy_tokenizer

VOCAB = 336
"""A little above the toy tokenizer's ids: a model's vocabulary may be padded."""


@dataclass(frozen=True)
class Shape:
    """A model's shape. Defaults: grouped queries, untied, a head dimension that is not hidden / heads."""

    vocab_size: int = VOCAB
    hidden_size: int = 48
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 80
    tied: bool = False
    max_position_embeddings: int = 512

    def config(self, block_size: int | None = 4, mask_token_id: int | None = toy_tokenizer.MASK_ID) -> dict[str, Any]:
        """config.json; a None leaves the key out, as the public SDAR checkpoints do."""
        config: dict[str, Any] = {
            "architectures": ["SDARForCausalLM"],
            "model_type": "sdar",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "tie_word_embeddings": self.tied,
            "hidden_act": "silu",
            "attention_bias": False,
        }
        if block_size is not None:
            config["block_size"] = block_size
        if mask_token_id is not None:
            config["mask_token_id"] = mask_token_id
        return config


def random_weights(shape: Shape, seed: int, jitter: float = 0.0) -> dict[str, Tensor]:
    """Name -> float32 tensor, a function of (shape, seed, jitter).

    Wide enough that distributions are far from flat. `jitter` mixes in that share of other noise: a model of the same
    seed that mostly, but not always, agrees.
    """
    generator, other = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)

    def normal(*size: int, std: float) -> Tensor:
        first, second = torch.randn(size, generator=generator), torch.randn(size, generator=other)
        return std * (math.sqrt(1 - jitter**2) * first + jitter * second)

    def matrix(rows: int, columns: int) -> Tensor:
        return normal(rows, columns, std=1.5 / math.sqrt(columns))

    def norm(size: int) -> Tensor:
        return 1 + normal(size, std=0.2)

    hidden, q, kv = shape.hidden_size, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    embedding_std = 2 / math.sqrt(hidden) if shape.tied else 1.0
    weights = {"model.embed_tokens.weight": normal(shape.vocab_size, hidden, std=embedding_std)}
    for layer in range(shape.layers):
        parts = {
            "input_layernorm": norm(hidden),
            "self_attn.q_proj": matrix(q, hidden),
            "self_attn.k_proj": matrix(kv, hidden),
            "self_attn.v_proj": matrix(kv, hidden),
            "self_attn.o_proj": matrix(hidden, q),
            "self_attn.q_norm": norm(shape.head_dim),
            "self_attn.k_norm": norm(shape.head_dim),
            "post_attention_layernorm": norm(hidden),
            "mlp.gate_proj": matrix(shape.intermediate_size, hidden),
            "mlp.up_proj": matrix(shape.intermediate_size, hidden),
            "mlp.down_proj": matrix(hidden, shape.intermediate_size),
        }
        weights |= {f"model.layers.{layer}.{name}.weight": tensor for name, tensor in parts.items()}
    weights["model.norm.weight"] = norm(hidden)
    if not shape.tied:
        weights["lm_head.weight"] = normal(shape.vocab_size, hidden, std=3 / math.sqrt(hidden))
    return weights


def write_weights(directory: Path, weights: dict[str, Tensor], shards: int = 1) -> None:
    """One model.safetensors, or `shards` files with their index."""
    if shards == 1:
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(weights)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]
        save_file({name: weights[name] for name in part}, directory / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(4 * t.numel() for t in weights.values())}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def write_checkpoint(
    directory: Path,
    shape: Shape | None = None,
    *,
    seed: int = 0,
    jitter: float = 0.0,
    shards: int = 1,
    block_size: int | None = 4,
    mask_token_id: int | None = toy_tokenizer.MASK_ID,
    eos_token_ids: list[int] | None = None,
    tokenizer: bool = True,
) -> Path:
    """A whole checkpoint directory; generation_config.json only where `eos_token_ids` are given."""
    shape = shape or Shape()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(shape.config(block_size, mask_token_id)))
    if eos_token_ids is not None:
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": eos_token_ids}))
    write_weights(directory, random_weights(shape, seed, jitter), shards)
    if tokenizer:
        toy_tokenizer.write(directory)
    return directory
