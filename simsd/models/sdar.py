"""SDAR (dense): Qwen3's shape, used for block diffusion. Row i predicts the token at position i (no shift)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simsd.models.config import ModelConfig
from simsd.models.layers import Attend, Attention, Reduce, RMSNorm, SharedLinear, SwiGLU, rope_table


class SDARLayer(nn.Module):
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
    """Everything below the vocabulary; the checkpoint's `model.` prefix."""

    rope: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(SDARLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        table = rope_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
        self.register_buffer("rope", table, persistent=False)


class SDARForCausalLM(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = SDARTrunk(config)
        self.lm_head = None if config.tie_word_embeddings else nn.Linear(config.hidden_size, config.vocab_size, False)

    def forward(self, token_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        """Hidden states of the last layer, normalised.

        token_ids [N] int64, position_ids [N] int64 in [0, max_position_embeddings) -> [N, hidden].
        """
        assert token_ids.ndim == 1 and token_ids.shape == position_ids.shape
        x = self.model.embed_tokens(token_ids)
        rope = self.model.rope[position_ids]
        for layer in self.model.layers:
            x = layer(x, rope, attend)
        return self.model.norm(x)

    def prepare(self) -> None:
        """Make small float32 forwards on a CPU faster; after the weights are there, which must not change then.

        Weights that lie column by column need no transposing on their way into a product: a ninth off a forward of four
        to twelve rows.
        """
        for module in self.modules():
            if isinstance(module, RMSNorm | Attention):
                module.prepare()
            elif isinstance(module, nn.Linear):
                module.weight = nn.Parameter(module.weight.t().contiguous().t(), requires_grad=False)

    def reduce_over(self, reduce: Reduce) -> None:
        """This model is one rank's part: sum what the parts give."""
        for module in self.modules():
            if isinstance(module, SharedLinear):
                module.reduce = reduce

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [M, hidden] (only the rows that need a prediction) -> [M, vocab] float32."""
        head = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, head).to(torch.float32)
