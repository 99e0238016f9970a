"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def orthogonalised(matrices: Tensor, steps: int = 5) -> Tensor:
    """Orthogonalise matrices [K, n, m]: their singular values become near 1, by a quintic Newton-Schulz iteration."""
    assert matrices.ndim == 3
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """The optimizer, which is for hidden matrices only. A packed parameter (q, k, v) is orthogonalised part by part.

    `params` are pairs (parameter [n, m], sizes of its parts along dimension 0).
    """

    def __init__(
        self, params: Sequence[tuple[Tensor, tuple[int, ...]]], lr: float = 0.02, momentum: float = 0.95
    ) -> None:
        groups: list[dict[str, Any]] = [{"params": [parameter], "parts": parts} for parameter, parts in params]
        super().__init__(groups, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Apply Nesterov momentum and an orthogonalised update to each part; parts of one shape go in one batch."""
        assert closure is None
        by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor, float]]] = defaultdict(list)
        for group in self.param_groups:
            (parameter,) = group["params"]
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            buffer = state["momentum"]
            buffer.lerp_(parameter.grad, 1 - group["momentum"])
            update = parameter.grad.lerp(buffer, group["momentum"])
            for weight, part in zip(parameter.split(group["parts"]), update.split(group["parts"]), strict=True):
                by_shape[part.shape].append((weight, part, group["lr"]))
        for (rows, columns), parts in by_shape.items():
            scale = max(1.0, rows / columns) ** 0.5
            for (weight, _, lr), direction in zip(
                parts, orthogonalised(torch.stack([part for _, part, _ in parts])), strict=True
            ):
                weight.sub_(direction, alpha=lr * scale)
