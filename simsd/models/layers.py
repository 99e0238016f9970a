"""The parts that model families share. Rows are flat: N is the number of rows of all sequences together."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention, as the models call it: (layer, q [N, H, D], k [N, Hkv, D], v [N, Hkv, D]) -> [N, H * D]."""


Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over the ranks of a tensor-parallel model."""


class SharedLinear(nn.Linear):
    """A linear layer whose input is split over ranks. `reduce` adds up their partial outputs."""

    reduce: Reduce | None = None

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if self.reduce is None else self.reduce(out)


def empty_embedding(rows: int, size: int) -> nn.Embedding:
    """Make an embedding [rows, size] with uninitialised weights. Torch's own constructor would draw random ones."""
    return nn.Embedding.from_pretrained(torch.empty(rows, size), freeze=False)


class FastNorm:
    """RMS norm in four operations. On a CPU torch's own takes seven."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """weight: [..., size], the factor that is applied after normalising over the last dimension."""
        size = weight.shape[-1]
        self.scale, self.floor = weight * size**0.5, torch.tensor((size * eps) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self.floor) * self.scale


class RMSNorm(nn.Module):
    """RMS norm with a weight, which becomes a `FastNorm` once the weights are in place (`prepare`)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self.fast: FastNorm | None = None

    def prepare(self) -> None:
        self.fast = FastNorm(self.weight, self.eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., size] over the last dimension; the shape stays the same."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps) if self.fast is None else self.fast(x)


def rope_table(positions: int, head_dim: int, theta: float) -> Tensor:
    """Return the cosines and sines for the rotate-half convention, [positions, 2, head_dim] float32.

    The sines of the first half are negated, so that `apply_rope` need not negate half of every x.
    """
    inverse_frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse_frequency)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)), dim=1)


def apply_rope(x: Tensor, rope: Tensor) -> Tensor:
    """Rotate x [N, H, D] by rope [N, 2, D]. It is computed in the dtype of rope, and returned in that of x."""
    cos, sin = rope[:, :1], rope[:, 1:]
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with per-head RMS norms of q and k before RoPE. One matrix projects to q, k and v."""

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
        """Return the norms' weights of q and k together, [H + Hkv, D]."""
        return torch.cat((self.q_norm.weight.expand(self.heads, -1), self.k_norm.weight.expand(self.kv_heads, -1)))

    def forward(self, x: Tensor, rope: Tensor, attend: Attend) -> Tensor:
        """Attend for x [N, hidden] with rope [N, 2, D], and return [N, hidden]."""
        qkv = self.qkv_proj(x).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        qk, v = qkv.split((self.heads + self.kv_heads, self.kv_heads), dim=1)
        # q and k are normalised and rotated together, because small batches are limited by the number of launches.
        qk = self.fast(qk) if self.fast else F.rms_norm(qk, (self.head_dim,), eps=self.eps) * self._qk_weight()
        q, k = apply_rope(qk, rope).split((self.heads, self.kv_heads), dim=1)
        return self.o_proj(attend(self.layer, q, k, v))


class SwiGLU(nn.Module):
    """The gated feed-forward layer. One matrix projects to gate and up."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down_proj = SharedLinear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output [N, hidden] for x [N, hidden]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)
