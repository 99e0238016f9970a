"""Vanilla block diffusion written plainly: no pages, no batches, no folding, the whole prefix at every step.

The reference that the product's `vanilla` (and so `exact`) is compared with. It also knows how close each decision was:
a difference from it is a fault unless the two candidates' scores lay within `TIE` of each other.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from simsd.decoding.noise import SAMPLE, keys_of, token_counters, uniform
from simsd.decoding.sampling import RowParams
from simsd.messages.request import DecodeParams
from simsd.models.model import BlockDiffusionModel
from tests.unit.numbers import log_probs_of, model_log_probs_of

TIE = 1e-4


@dataclass
class Reference:
    """Tokens after the prompt, all of them, and the smallest margin of any decision that led to them."""

    tokens: list[int]
    margin: float


def dense_logits(model: BlockDiffusionModel, tokens: list[int], visible: Tensor) -> Tensor:
    """Logits [T, V] of a plain forward; visible [T, T] bool."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)

    with torch.inference_mode():
        logits = model.logits(model(torch.tensor(tokens), torch.arange(len(tokens)), attend))
    return logits.clone()  # an ordinary tensor again, that callers may write to


def block_causal(length: int, block_size: int) -> Tensor:
    block = torch.arange(length) // block_size
    return block.unsqueeze(1) >= block.unsqueeze(0)


def decode(
    model: BlockDiffusionModel,
    prompt: list[int],
    params: DecodeParams,
    block_size: int,
    mask_token_id: int,
    eos: tuple[int, ...],
) -> Reference:
    """Greedy or sampled decoding with any remasking; stops at EOS or max_tokens, whichever comes first in position."""
    tokens, margin = list(prompt), math.inf
    while True:
        start = len(tokens) // block_size * block_size
        tokens += [mask_token_id] * (start + block_size - len(tokens))
        step = 0
        while mask_token_id in tokens:
            logits = dense_logits(model, tokens, block_causal(len(tokens), block_size))
            logits[:, mask_token_id] = -math.inf
            open_positions = [i for i, t in enumerate(tokens) if t == mask_token_id]
            revealed = block_size - len(open_positions)
            picks, close = _step(logits, open_positions, params, revealed, step, block_size)
            margin = min(margin, close)
            for position, token in picks:
                tokens[position] = token
            step += 1
            answer = tokens[len(prompt) :]
            visible = answer[: answer.index(mask_token_id)] if mask_token_id in answer else answer
            end = next((i for i, t in enumerate(visible) if t in eos and not params.ignore_eos), None)
            if end is not None and end < params.max_tokens:
                return Reference(answer[:end], margin)
            if len(visible) >= params.max_tokens:
                return Reference(answer[: params.max_tokens], margin)


def _step(
    logits: Tensor, positions: list[int], params: DecodeParams, revealed: int, step: int, block_size: int
) -> tuple[list[tuple[int, int]], float]:
    """What one step reveals, and how close the nearest other outcome was."""
    wants = [(params, position, revealed) for position in positions]
    log_probs = log_probs_of(logits[positions], wants)
    values = log_probs.to(torch.float64)
    if params.temperature > 0:
        keys = keys_of(RowParams(wants), SAMPLE, np.arange(len(wants)))
        noise = uniform(torch.from_numpy(keys), token_counters(torch.arange(logits.shape[-1])))
        values = values - torch.log(-torch.log(noise))
    best = values.topk(2, dim=-1)
    tokens = best.indices[:, 0].tolist()
    gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
    model = model_log_probs_of(logits[positions], wants).exp()
    confidence = model.gather(1, best.indices[:, :1]).squeeze(1).tolist()
    entropy = torch.special.entr(model).sum(dim=-1).tolist()
    owed = min(len(positions), max(1, block_size // params.steps + (step < block_size % params.steps)))
    close = min(gaps)
    by_confidence = sorted(range(len(positions)), key=lambda i: -confidence[i])
    if params.remasking == "sequential":
        chosen = list(range(owed))
    elif params.remasking == "entropy":
        chosen, total = [], 0.0
        for i in sorted(range(len(positions)), key=lambda i: entropy[i]):
            total += entropy[i]
            close = min(close, abs(total - params.entropy_bound))
            if total >= params.entropy_bound and len(chosen) >= owed:
                break
            chosen.append(i)
        ordered = sorted(entropy)
        close = min([close, *(b - a for a, b in itertools.pairwise(ordered))])
    else:
        chosen = by_confidence[:owed]
        if params.remasking == "dynamic":
            chosen = max(chosen, [i for i in by_confidence if confidence[i] > params.threshold], key=len)
            close = min([close, *(abs(c - params.threshold) for c in confidence)])
        ordered = sorted(confidence)
        close = min([close, *(b - a for a, b in itertools.pairwise(ordered))])
    return [(positions[i], tokens[i]) for i in chosen], close
