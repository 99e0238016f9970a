"""The parts the model families share. Rows are flat: N is the number of rows, whatever sequences they belong to."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, H, D], k [N, Hkv, D], v [N, Hkv, D]) -> [N, H * D]; attention behind one interface."""


Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over the ranks of a tensor-parallel model."""


class SharedLinear(nn.Linear):
    """A linear layer whose input is split over ranks; `reduce` adds up their partial outputs."""

    reduce: Reduce | None = None

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if self.reduce is None else self.reduce(out)


def empty_embedding(rows: int, size: int) -> nn.Embedding:
    """An embedding [rows, size] whose weights hold nothing yet; torch's own constructor would draw them."""
    return nn.Embedding.from_pretrained(torch.empty(rows, size), freeze=False)


class FastNorm:
    """RMS norm in four operations; on a CPU torch's own is a chain of seven."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """weight [..., size], multiplied into what is normalised over the last dimension."""
        size = weight.shape[-1]
        self.scale, self.floor = weight * size**0.5, torch.tensor((size * eps) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self.floor) * self.scale


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self.fast: FastNorm | None = None

    def prepare(self) -> None:
        self.fast = FastNorm(self.weight, self.eps)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> the same shape, normalised over the last dimension."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps) if self.fast is None else self.fast(x)


def rope_table(positions: int, head_dim: int, theta: float) -> Tensor:
    """[positions, 2, head_dim] float32: cosines and sines for the rotate-half convention.

    The sines of the first half are negated, so that `apply_rope` need not negate half of every x.
    """
    inverse_frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse_frequency)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)), dim=1)


def apply_rope(x: Tensor, rope: Tensor) -> Tensor:
    """x [N, H, D] rotated by rope [N, 2, D]; computed in rope's dtype, returned in x's."""
    cos, sin = rope[:, :1], rope[:, 1:]
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with per-head RMS norms of q and k before RoPE; q, k, v in one matrix."""

    def __init__(self, layer: int, hidden: int, heads: int, kv_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.layer, self.heads, self.kv_heads, self.head_dim, self.eps = layer, heads, kv_heads, head_dim, eps
        self.qkv_proj = nn.Linear(hidden, (heads + 2 * kv_heads) * head_dim, bias=False)
        self.o_proj = SharedLinear(heads * head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(head_dim, eps)
        self.k_norm = RMSNorm(head_dim, eps)
        self.fast: FastNorm | None = None

    def prepare(self) -> None:
        self.fast = FastNorm(self._qk_weight(), self.eps)

    def _qk_weight(self) -> Tensor:
        """[H + Hkv, D]."""
        return torch.cat((self.q_norm.weight.expand(self.heads, -1), self.k_norm.weight.expand(self.kv_heads, -1)))

    def forward(self, x: Tensor, rope: Tensor, attend: Attend) -> Tensor:
        """x [N, hidden], rope [N, 2, D] -> [N, hidden]."""
        qkv = self.qkv_proj(x).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        qk, v = qkv.split((self.heads + self.kv_heads, self.kv_heads), dim=1)
        # q and k are normalised and rotated together: on small batches the number of launches is what costs.
        qk = self.fast(qk) if self.fast else F.rms_norm(qk, (self.head_dim,), eps=self.eps) * self._qk_weight()
        q, k = apply_rope(qk, rope).split((self.heads, self.kv_heads), dim=1)
        return self.o_proj(attend(self.layer, q, k, v))


class SwiGLU(nn.Module):
    """Gated feed-forward; gate and up in one matrix."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down_proj = SharedLinear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, hidden] -> [N, hidden]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)
