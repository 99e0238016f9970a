"""Measures how near one pass over paired rows comes to sequential denoising (the paper, section 4).

For each block of an answer, a model drafts a path: which position gets which token, step by step. The target then
evaluates every step twice in one forward: on paired rows, and on a copy of the block that holds the steps before. The
drafter is the target itself (self-draft) or the draft model. Answers continue as the target alone writes them.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from simsd.eval.datasets import Item
from simsd.in_process import LocalClient
from simsd.loop.loop import Loop
from simsd.models.model import BlockDiffusionModel
from simsd.verification.rows import Rows
from simsd.verification.visibility import visibility
from simsd.worker.worker import Worker
from simsd_bench.measure.decode import Tick
from simsd_bench.measure.pair import PairSpec

MAX_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Step:
    """One drafted token. total_variation and kl (nats, sequential to paired) are between the two distributions.

    wrong: the best token of the sequential distribution is not the drafted one; reached: no token before it was wrong,
    so that a verification reaches it; accepts: the best token of the paired distribution is the drafted one.
    """

    rank: int
    top1: bool
    kl: float
    total_variation: float
    wrong: bool
    reached: bool
    accepts: bool


def dense_logits(model: BlockDiffusionModel, rows: Rows) -> Tensor:
    """Return the logits [wanted rows, V] of one plain forward over all rows, without a cache."""
    device = model.head.device
    seen = torch.from_numpy(visibility(*np.array([rows.block, rows.branch, rows.kind, rows.tau]))).to(device)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, attn_mask=seen, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)

    ids, positions, wants = (torch.tensor(x, device=device) for x in (rows.token, rows.position, rows.wants))
    return model.logits(model(ids, positions, attend)[wants])


@torch.inference_mode()
def drafted_path(worker: Worker, known: list[int], block: list[int]) -> list[tuple[int, int]]:
    """Return (offset, token) of the open positions, in the order in which `worker`'s model reveals them."""
    path, block = [], list(block)
    mask = worker.info.mask_token_id
    while mask in block:
        rows = Rows()
        rows.commit(known, 0, len(block))
        rows.denoise(block, len(known), mask)
        logits = dense_logits(worker.model, rows)
        logits[:, mask] = float("-inf")
        offsets = [offset for offset, token in enumerate(block) if token == mask]
        top = logits.softmax(dim=-1).max(dim=-1)
        best = int(top.values.argmax())
        offset, token = offsets[best], int(top.indices[best])
        path.append((offset, token))
        block[offset] = token
    return path


@torch.inference_mode()
def compare(
    worker: Worker, known: list[int], block: list[int], path: list[tuple[int, int]], aligned: bool = True
) -> list[Step]:
    """Compare paired with sequential rows at each step of `path` in the open `block`, which follows `known`.

    known: token ids of whole blocks; block: B token ids, with the mask token where it is open.
    """
    mask, size = worker.info.mask_token_id, len(block)
    still_open = [offset for offset, token in enumerate(block) if token == mask]
    offsets, tokens = [offset for offset, _ in path], [token for _, token in path]
    rows = Rows()
    rows.commit(known, 0, size)
    rows.paired(block, len(known), mask, offsets, tokens, aligned)
    wanted, state = [still_open.index(offset) for offset in offsets], list(block)
    for rank, (offset, token) in enumerate(path):
        left = [o for o, t in enumerate(state) if t == mask]
        wanted.append(len(rows.wants) + left.index(offset))
        rows.denoise(state, len(known), mask, branch=rank + 1)
        state[offset] = token
    logits = dense_logits(worker.model, rows)[torch.tensor(wanted)]
    logits[:, mask] = float("-inf")
    paired, sequential = logits.log_softmax(dim=-1).split(len(path))
    drafted = torch.tensor(tokens, device=logits.device)
    kl = F.kl_div(paired, sequential, log_target=True, reduction="none").nan_to_num(0).sum(dim=-1).tolist()
    variation = ((paired.exp() - sequential.exp()).abs().sum(dim=-1) / 2).tolist()
    top1 = (paired.argmax(dim=-1) == sequential.argmax(dim=-1)).tolist()
    wrong = (sequential.argmax(dim=-1) != drafted).tolist()
    accepts = (paired.argmax(dim=-1) == drafted).tolist()
    return [Step(i, top1[i], kl[i], variation[i], wrong[i], not any(wrong[:i]), accepts[i]) for i in range(len(path))]


def steps_of(loop: Loop, item: Item, own_draft: bool, max_blocks: int = MAX_BLOCKS, aligned: bool = True) -> list[Step]:
    """Return all steps of an answer, up to its end or `max_blocks` blocks."""
    target, draft = (client.worker for client in (loop.target, loop.draft) if isinstance(client, LocalClient))
    assert isinstance(target, Worker) and isinstance(draft, Worker)
    drafter = target if own_draft else draft
    mask, size = target.info.mask_token_id, target.info.block_size
    prompt = loop.tokenizer.encode_messages(item.messages, tools=item.tools)
    known, tail = prompt[: len(prompt) // size * size], prompt[len(prompt) // size * size :]
    found: list[Step] = []
    for _ in range(max_blocks):
        block = tail + [mask] * (size - len(tail))
        found += compare(target, known, block, drafted_path(drafter, known, block), aligned)
        for offset, token in drafted_path(target, known, block):
            block[offset] = token
        known, tail = known + block, []
        if any(token in target.info.eos_token_ids for token in block):
            break
    return found


def summary(steps: Sequence[Step]) -> dict[str, Any]:
    """Return means over steps; None where there are no steps."""
    n = len(steps)
    return {
        "steps": n,
        "top1": statistics.fmean(s.top1 for s in steps) if n else None,
        "kl": statistics.fmean(s.kl for s in steps) if n else None,
        "total_variation": statistics.fmean(s.total_variation for s in steps) if n else None,
    }


def wrong_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the steps at which a verification reaches a wrong token of the draft."""
    return [step for step in steps if step.wrong and step.reached]


def run(
    spec: PairSpec, asked: Sequence[Item], block_sizes: Sequence[int], note: Callable[[str], Tick]
) -> dict[str, Any]:
    """Return rows for each block size and drafter: over all steps, each rank, and steps where the draft is wrong."""
    rows: list[dict[str, Any]] = []
    for block_size in block_sizes:
        loop = spec.loop(block_size)
        for drafter in ("self-draft", "draft/target"):
            tick = note(f"B={block_size}, {drafter}: steps of {len(asked)} answers")
            steps: list[Step] = []
            for item in asked:
                steps += steps_of(loop, item, drafter == "self-draft")
                tick()
            wrong = wrong_steps(steps)
            accepts = statistics.fmean(step.accepts for step in wrong) if wrong else None
            head = {"block_size": block_size, "drafter": drafter, "answers": len(asked)}
            rows.append(head | {"part": "all"} | summary(steps))
            rows += [head | {"part": r} | summary([s for s in steps if s.rank == r]) for r in range(block_size)]
            if wrong:  # there are none where the target drafts for itself
                rows.append(head | {"part": "draft wrong", "false_accepts": accepts} | summary(wrong))
    return {"kind": "approx", "rows": rows}
