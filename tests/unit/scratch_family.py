"""A family that is not there, as docs/adding-a-model.md describes one: Qwen3 under other names, in one module.

It differs from SDAR in the names of its settings, in those of its tensors, of which q, k and v are one, and in its
network, whose modules have the names that its author liked.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simsd.models.config import ModelConfig, standard_fields
from simsd.models.config_file import ConfigFile
from simsd.models.family import Family, Layout, Piece
from simsd.models.layers import Attend, Attention, RMSNorm, SwiGLU, empty_embedding, rope_table
from simsd.models.model import BlockDiffusionModel

ARCHITECTURE = "ScratchForDiffusion"
KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
    "tie_word_embeddings": "weight_tying",
    "block_size": "bd_size",
}
UNSUPPORTED: dict[str, tuple[Any, ...]] = {"alibi": (False,), "activation_type": ("silu",)}


def read_config(config: ConfigFile, generation: ConfigFile | None, name: str) -> ModelConfig:
    config.neutral(UNSUPPORTED)
    return ModelConfig(**standard_fields(config, generation, KEYS))


def layout(config: ModelConfig) -> Layout:
    hidden, head_dim, intermediate = config.hidden_size, config.head_dim, config.intermediate_size
    q, kv = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
    pieces = [
        Piece("wte.weight", (config.vocab_size, hidden), "wte.weight"),
        Piece("ln_f.weight", (hidden,), "ln_f.weight"),
        Piece("ff_out.weight", (config.vocab_size, hidden), "ff_out.weight"),
    ]
    for i in range(config.num_hidden_layers):
        here = f"blocks.{i}"
        fused = f"{here}.attention.query_key_value.weight"
        # One tensor in the checkpoint, but ranks have heads of q, of k and of v.
        for start, rows in ((0, q), (q, kv), (q + kv, kv)):
            pieces.append(Piece(fused, (rows, hidden), f"{here}.attn.qkv_proj.weight", start, shared=0))
        pieces += [
            Piece(f"{here}.attention.dense.weight", (hidden, q), f"{here}.attn.o_proj.weight", shared=1),
            Piece(f"{here}.attention.query_layernorm.weight", (head_dim,), f"{here}.attn.q_norm.weight"),
            Piece(f"{here}.attention.key_layernorm.weight", (head_dim,), f"{here}.attn.k_norm.weight"),
            Piece(f"{here}.attn_norm.weight", (hidden,), f"{here}.attn_norm.weight"),
            Piece(f"{here}.ff_norm.weight", (hidden,), f"{here}.ff_norm.weight"),
            Piece(f"{here}.ff_proj.weight", (intermediate, hidden), f"{here}.mlp.gate_up_proj.weight", shared=0),
            Piece(f"{here}.up_proj.weight", (intermediate, hidden), f"{here}.mlp.gate_up_proj.weight", shared=0),
            Piece(f"{here}.ff_out.weight", (hidden, intermediate), f"{here}.mlp.down_proj.weight", shared=1),
        ]
    return Layout(tuple(pieces))


class Block(nn.Module):
    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        heads, kv_heads, eps = config.num_attention_heads, config.num_key_value_heads, config.rms_norm_eps
        self.attn_norm, self.ff_norm = RMSNorm(config.hidden_size, eps), RMSNorm(config.hidden_size, eps)
        self.attn = Attention(layer, config.hidden_size, heads, kv_heads, config.head_dim, eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size)


class Scratch(BlockDiffusionModel):
    rope: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.wte = empty_embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_hidden_layers))
        self.ln_f = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.ff_out = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, token_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        x, rope = self.wte(token_ids), self.rope[position_ids]
        for block in self.blocks:
            x = x + block.attn(block.attn_norm(x), rope, attend)
            x = x + block.mlp(block.ff_norm(x))
        return self.ln_f(x)

    @property
    def head(self) -> Tensor:
        return self.ff_out.weight

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.head).to(torch.float32)

    def make_tables(self) -> None:
        config = self.config
        table = rope_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
        self.register_buffer("rope", table.to(self.head.device), persistent=False)


SCRATCH = Family(read_config, layout, Scratch, end_of_turn=("<|im_start|>", "<|not in the vocabulary|>"))
