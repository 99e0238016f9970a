"""The network of dense SDAR checkpoints, which is Qwen3's, used for block diffusion."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simsd.models.config import ModelConfig
from simsd.models.layers import Attend, Attention, RMSNorm, SwiGLU, empty_embedding, rope_table
from simsd.models.model import BlockDiffusionModel


class SDARLayer(nn.Module):
    """A layer of Qwen3: attention and feed-forward, each after a norm and added to its input."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        eps = config.rms_norm_eps
        self.input_layernorm = RMSNorm(config.hidden_size, eps)
        self.self_attn = Attention(
            layer, config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim, eps
        )
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor, rope: Tensor, attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class SDARTrunk(nn.Module):
    """The embedding and all layers, without the head."""

    rope: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = empty_embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(SDARLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class SDARForCausalLM(BlockDiffusionModel):
    """A dense SDAR model, in the names of its checkpoints."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.model = SDARTrunk(config)
        self.lm_head = None if config.tie_word_embeddings else nn.Linear(config.hidden_size, config.vocab_size, False)

    def forward(self, token_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        assert token_ids.ndim == 1 and token_ids.shape == position_ids.shape
        x = self.model.embed_tokens(token_ids)
        rope = self.model.rope[position_ids]
        for layer in self.model.layers:
            x = layer(x, rope, attend)
        return self.model.norm(x)

    @property
    def head(self) -> Tensor:
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.head).to(torch.float32)

    def make_tables(self) -> None:
        config = self.config
        table = rope_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
        self.model.register_buffer("rope", table.to(self.head.device), persistent=False)
