"""Plain block diffusion with transformers: `Qwen3ForCausalLM`, a `DynamicCache`, a 4-D mask and a loop.

Our own vanilla is compared with it. The steps are those of the public SDAR code: each forward over the open block
reveals its surest position, until none is open; one more forward commits the block to the cache. It decodes one
sequence greedily.
"""

import time

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from simsd.models.checkpoint import layout_of
from simsd.models.loading import checkpoint_tensors
from simsd.models.model import BlockDiffusionModel

SHAPE = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
)
"""Fields of a `ModelConfig` that have the same name in transformers."""


def qwen3(model: BlockDiffusionModel) -> Qwen3ForCausalLM:
    """Return transformers' model with the weights of `model`, a dense SDAR, whose tensors have the names of Qwen3's."""
    config = model.config
    shape = {name: getattr(config, name) for name in SHAPE}
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    with torch.device(model.head.device):
        plain = Qwen3ForCausalLM(Qwen3Config(**shape, rope_parameters=rope, attn_implementation="sdpa"))
    missing, unexpected = plain.load_state_dict(checkpoint_tensors(model), strict=False)
    assert not unexpected and set(missing) <= layout_of(config).copies.keys()
    return plain.to(model.head.dtype).eval()


class PlainLoop:
    """Decodes one prompt at a time; `longest` bounds prompt and answer together, in tokens."""

    def __init__(self, model: Qwen3ForCausalLM, block_size: int, mask_token_id: int, longest: int) -> None:
        self.model, self.block_size, self.mask_token_id = model, block_size, mask_token_id
        block = torch.arange(longest, device=model.device) // block_size
        self.visible = block.unsqueeze(1) >= block.unsqueeze(0)
        self.positions = torch.arange(longest, device=model.device).unsqueeze(0)

    @torch.inference_mode()
    def decode(self, prompt: list[int], new_tokens: int) -> tuple[list[int], float]:
        """Return the tokens after `prompt`, and the seconds of decoding. Prompt and answer together fill blocks."""
        size = self.block_size
        end, start = len(prompt) + new_tokens, len(prompt) // size * size
        assert end % size == 0
        ids = torch.full((1, end), self.mask_token_id, device=self.model.device)
        ids[0, : len(prompt)] = torch.tensor(prompt)
        cache = DynamicCache()
        if start:
            self.forward(ids, 0, start, cache)
        began = self._now()
        for first in range(start, end, size):
            block = ids[0, first : first + size]
            while (is_open := block == self.mask_token_id).any():
                logits = self.forward(ids, first, first + size, cache)
                cache.crop(-size)
                logits[:, self.mask_token_id] = float("-inf")
                confidence, tokens = logits.softmax(dim=-1).max(dim=-1)
                surest = confidence.masked_fill(~is_open, -1).argmax()
                block[surest] = tokens[surest]
            if first + size < end:
                self.forward(ids, first, first + size, cache)
        return ids[0, len(prompt) :].tolist(), self._now() - began

    def forward(self, ids: Tensor, first: int, last: int, cache: DynamicCache) -> Tensor:
        """Return the logits [last - first, V] float32 of a forward over these positions; their KV goes to the cache."""
        visible = self.visible[None, None, first:last, :last]
        # Arguments are given by position, since the cache's name changes within transformers 5.
        return self.model(ids[:, first:last], visible, self.positions[:, first:last], cache).logits[0].float()

    def _now(self) -> float:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()
