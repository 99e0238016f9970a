"""Step order is not position order: a rejection in a right-to-left draft leaves holes, and they are kept."""

import numpy as np
import pytest

from simsd.in_process import LocalClient
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock, Proposal, Proposals, Work
from tests import oracle
from tests.unit import pairs

PROMPT = "Tom has 23 apples and buys 14 more. How many apples does he have now?"


def scripted(block_size: int, layout: str, wrong_at: int) -> tuple[Work, Proposals, list[int], list[int]]:
    """A right-to-left draft of a whole block: the target's own greedy tokens in that order, but for one.

    Returns the work, the proposals, the prompt and the tokens that the target itself would put, right to left.
    """
    worker = pairs.worker("target", block_size)
    mask = worker.info.mask_token_id
    prompt = pairs.chat(PROMPT)
    prompt = prompt[: len(prompt) // block_size * block_size]
    block, own = [mask] * block_size, []
    offsets = list(range(block_size - 1, -1, -1))
    tokens = []
    for rank, offset in enumerate(offsets):
        rows = prompt + block
        logits = oracle.dense_logits(worker.model, rows, oracle.block_causal(len(rows), block_size))
        logits[:, mask] = -np.inf
        ranked = logits[len(prompt) + offset].argsort(descending=True).tolist()
        own.append(ranked[0])
        # Far off, so that the one-pass layout's approximation cannot talk the target into it.
        tokens.append(ranked[100] if rank == wrong_at else ranked[0])
        block[offset] = tokens[-1]
    params = DecodeParams(method="simsd", layout=layout, max_tokens=block_size).resolve(block_size)  # type: ignore[arg-type]
    work = Work("holes", params, len(prompt) + block_size, 0, prompt, len(prompt), None, 0, 0)
    proposal = Proposal([DraftedBlock.greedy(offsets, tokens, [1.0] * block_size)])
    return work, Proposals({"holes": proposal}, {"holes": len(prompt)}, {"holes": 1}, 1, 1, 0.0), prompt, own


@pytest.mark.parametrize("layout", ["paired", "branches"])
@pytest.mark.parametrize("block_size", [4, 8])
def test_a_rejection_in_the_middle_keeps_what_was_accepted(block_size: int, layout: str) -> None:
    wrong_at = block_size // 2
    work, proposals, prompt, own = scripted(block_size, layout, wrong_at)
    worker = pairs.worker("target", block_size)
    mask = worker.info.mask_token_id
    try:
        worker.verify([work], None)
        work.start, work.commit = len(prompt), []
        work.block, work.gamma = BlockState.behind(len(prompt), [], block_size, mask), block_size
        verdict = worker.verify([work], proposals).items["holes"]
    finally:
        worker.release(["holes"])
    [drafted], [decided] = proposals.items["holes"].blocks, verdict.blocks
    assert decided.reveals[:-1] == list(drafted.entries())[:wrong_at]
    assert decided.reveals[-1][0] == drafted.offsets[wrong_at]
    assert decided.reveals[-1][1] != drafted.tokens[wrong_at]
    if layout == "branches":  # exactly the context of sequential denoising, so exactly its token
        assert decided.reveals[-1][1] == own[wrong_at]
    assert (verdict.accepted, verdict.recovered, verdict.bonus) == (wrong_at, 1, 0)


def test_the_rest_is_target_only_denoising_from_the_holes() -> None:
    """After the rejection the target alone fills the block: as the plain oracle does from that very state."""
    block_size = 8
    work, proposals, prompt, own = scripted(block_size, "branches", 3)
    worker = pairs.worker("target", block_size)
    mask = worker.info.mask_token_id
    loop = pairs.loop_of(block_size)
    assert isinstance(loop.target, LocalClient)
    block = [mask] * block_size
    [drafted] = proposals.items["holes"].blocks
    for offset, token in list(drafted.entries())[:3]:
        block[offset] = token
    block[drafted.offsets[3]] = own[3]
    try:
        worker.verify([work], None)
        work.start, work.commit, work.gamma = len(prompt), [], 0
        for step in range(4, block_size):
            work.block = BlockState(len(prompt), tuple(block), mask, step, fresh=False)
            rows = prompt + block
            logits = oracle.dense_logits(worker.model, rows, oracle.block_causal(len(rows), block_size))
            logits[:, mask] = -np.inf
            probs = logits[len(prompt) :].softmax(dim=-1).amax(dim=-1)
            probs[[i for i, t in enumerate(block) if t != mask]] = -1
            offset = int(probs.argmax())
            verdict = worker.verify([work], None).items["holes"]
            [decided] = verdict.blocks
            assert decided.reveals == [(offset, int(logits[len(prompt) + offset].argmax()))]
            assert decided.fallback == 1
            block[offset] = decided.reveals[0][1]
    finally:
        worker.release(["holes"])
    assert mask not in block
