"""Counter-based randomness and what it samples from.

Every random number is a function of (request seed, position, tokens revealed in the block, purpose, token). There is no
generator state, so an answer depends on nothing but its own request.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simsd.messages.request import DecodeParams

SAMPLE, DRAFT, ACCEPT, RECOVER = range(4)
"""Purposes: the target's token (`exact` drafts share it), a draft's, the accept test, the recovered token."""

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_C1 = 0xBF58476D1CE4E5B9 - 2**64
_C2 = 0x94D049BB133111EB - 2**64


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014); int64 products wrap."""
    x = (x ^ _shift(x, 30)) * _C1
    x = (x ^ _shift(x, 27)) * _C2
    return x ^ _shift(x, 31)


def noise_keys(seed: Tensor, position: Tensor, revealed: Tensor, purpose: int) -> Tensor:
    """One key per row; all arguments int64 [M] -> int64 [M]."""
    key = _mix(seed + _GOLDEN)
    for part in (position, revealed, torch.full_like(position, purpose)):
        key = _mix(key + (part + 1) * _GOLDEN)
    return key


def uniform(keys: Tensor, tokens: Tensor) -> Tensor:
    """keys [M], tokens int64 [M, T] or [T] -> float64 in the open interval (0, 1), [M, T]."""
    bits = _shift(_mix(keys.unsqueeze(-1) + (tokens + 1) * _GOLDEN), 11)
    return ((bits.to(torch.float64) + 0.5) * 2.0**-53).clamp_(max=1 - 2.0**-53)


def gumbel_argmax(log_weights: Tensor, keys: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Sample a column of each row in proportion to exp(log_weights) [M, T] -> int64 [M].

    `tokens` [M, T] are the token ids of the columns, if they are not 0..T-1: noise belongs to the token.
    """
    if tokens is None:
        tokens = torch.arange(log_weights.shape[-1], device=log_weights.device)
    noise = -torch.log(-torch.log(uniform(keys, tokens)))
    return (log_weights.to(torch.float64) + noise).argmax(dim=-1)


@dataclass(slots=True)
class RowParams:
    """Sampling settings per logits row, [M] each.

    any_warm, any_cut, any_entropy: whether any row is sampled, filtered, or remasked by entropy; known before the
    tensors are on a device, so that greedy batches skip the work without asking it.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seed: Tensor
    position: Tensor
    revealed: Tensor
    any_warm: bool = True
    any_cut: bool = True
    any_entropy: bool = True

    @classmethod
    def build(cls, rows: list[tuple[DecodeParams, int, int]], device: torch.device) -> "RowParams":
        """rows: (the request's settings, position, tokens revealed in the block before this reveal)."""
        floats = np.array([(p.temperature, p.top_p, p.min_p) for p, _, _ in rows], np.float32)
        ints = np.array([(p.top_k, p.seed, position, revealed) for p, position, revealed in rows], np.int64)
        temperature, top_p, min_p = torch.from_numpy(floats).to(device).unbind(1)
        top_k, seed, position, revealed = torch.from_numpy(ints).to(device).unbind(1)
        any_warm = any(p.temperature > 0 for p, _, _ in rows)
        any_cut = any_warm and any(p.top_k > 0 or p.top_p < 1 or p.min_p > 0 for p, _, _ in rows)
        any_entropy = any(p.remasking == "entropy" for p, _, _ in rows)
        return cls(temperature, top_k, top_p, min_p, seed, position, revealed, any_warm, any_cut, any_entropy)

    def select(self, index: Tensor) -> "RowParams":
        return RowParams(
            self.temperature[index],
            self.top_k[index],
            self.top_p[index],
            self.min_p[index],
            self.seed[index],
            self.position[index],
            self.revealed[index],
            self.any_warm,
            self.any_cut,
            self.any_entropy,
        )

    def warm_rows(self) -> Tensor:
        """Indices of the rows that are sampled, int64."""
        if not self.any_warm:
            return torch.empty(0, dtype=torch.int64, device=self.temperature.device)
        return (self.temperature > 0).nonzero().squeeze(1)

    def keys(self, purpose: int) -> Tensor:
        return noise_keys(self.seed, self.position, self.revealed, purpose)


def filtered_log_probs(logits: Tensor, params: RowParams) -> Tensor:
    """log p after temperature, then min-p, top-k, top-p; [M, V] float32 -> [M, V], -inf where filtered away.

    Rows at temperature 0 come out unscaled and unfiltered: they are only asked for confidences. min-p keeps tokens of
    at least min_p times the likeliest one's probability. A token tied with the k-th is kept; top-p keeps the smallest
    set of likeliest tokens whose mass reaches p.
    """
    assert logits.ndim == 2
    if not params.any_warm:
        return logits.log_softmax(dim=-1)
    warm = params.temperature > 0
    log_probs = (logits / torch.where(warm, params.temperature, 1.0).unsqueeze(1)).log_softmax(dim=-1)
    if not params.any_cut:
        return log_probs
    cut_k, cut_p = warm & (params.top_k > 0), warm & (params.top_p < 1)
    ordered, order = log_probs.sort(dim=-1, descending=True)
    floor = ordered[:, :1] + torch.where(warm, params.min_p, 0.0).log().unsqueeze(1)
    ordered = ordered.masked_fill(ordered < floor, -math.inf).log_softmax(dim=-1)
    vocabulary = logits.shape[-1]
    rank = torch.arange(vocabulary, device=logits.device)
    k = torch.where(cut_k, params.top_k.clamp(max=vocabulary), vocabulary)
    threshold = ordered.gather(1, (k - 1).unsqueeze(1))
    ordered = ordered.masked_fill((ordered < threshold) & (rank >= k.unsqueeze(1)), -math.inf).log_softmax(dim=-1)
    mass_before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    beyond = cut_p.unsqueeze(1) & (mass_before >= params.top_p.unsqueeze(1)) & (rank > 0)
    ordered = ordered.masked_fill(beyond, -math.inf).log_softmax(dim=-1)
    return torch.empty_like(log_probs).scatter_(1, order, ordered)


@dataclass(slots=True)
class Scores:
    """What remasking and accept read, one entry per logits row (plain lists of length M).

    token: the sampled token (the best one at temperature 0) · confidence: its probability · top: the highest
    probability · entropy: nats, of all rows or, if none is remasked by it, of none.
    """

    token: list[int]
    confidence: list[float]
    top: list[float]
    entropy: list[float]


def sample(log_probs: Tensor, params: RowParams, purpose: int) -> Tensor:
    """One token per row [M, V] -> int64 [M]: the best one at temperature 0, else Gumbel-max with the row's noise."""
    token = log_probs.argmax(dim=-1)
    warm = params.warm_rows()
    if warm.numel():
        token[warm] = gumbel_argmax(log_probs[warm], params.select(warm).keys(purpose))
    return token


def score(log_probs: Tensor, params: RowParams, purpose: int = SAMPLE) -> Scores:
    """Sample a token of each row [M, V], and find everything that the rules read about it."""
    best, token = log_probs.max(dim=-1)
    top = confidence = best.exp().tolist()
    warm = params.warm_rows()
    if warm.numel():
        token[warm] = gumbel_argmax(log_probs[warm], params.select(warm).keys(purpose))
        confidence = log_probs.gather(1, token.unsqueeze(1)).squeeze(1).exp().tolist()
    entropy = entropies(log_probs) if params.any_entropy else []
    return Scores(token.tolist(), confidence, top, entropy)


def entropies(log_probs: Tensor) -> list[float]:
    """Of each row of [M, V], in nats."""
    nats: list[float] = torch.special.entr(log_probs.exp()).sum(dim=-1).tolist()
    return nats
