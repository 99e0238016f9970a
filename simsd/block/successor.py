"""What follows from a verdict: a sequence's next round, which the target can often derive without the loop."""

import dataclasses

from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import Verdict, Work
from simsd.messages.worker import WorkerInfo


def only_loop_knows(params: DecodeParams) -> bool:
    """Whether only the loop can tell what comes after a round, because it routes (S2D2) or adapts the drafting.

    Only the loop sees stop strings and cancelled requests, too. A round that was begun after such an end is dropped.
    """
    return params.routes or (params.adaptive and params.needs_draft)


def tokens_to_draft(params: DecodeParams, block: BlockState) -> int:
    """Return how many tokens the draft is asked for in `block`; with 0 the target denoises by itself.

    With `fallback: target` the target takes over once fewer than gamma positions are open (paper, section 3). A fresh
    block is always drafted, even if the prompt's last tokens leave fewer than gamma of its positions open.
    """
    left = block.left
    if params.method == "simsd" and params.fallback == "target" and left < params.gamma and not block.fresh:
        return 0
    return min(params.gamma, left)


def next_work(work: Work, verdict: Verdict, info: WorkerInfo) -> Work | None:
    """Return the target's work in the round after `verdict`; None if only the loop can tell, or the answer ended."""
    params, block = work.params, work.block
    if block is None or only_loop_knows(params) or work.forced or not verdict.revealed:
        return None
    commit = work.commit[verdict.cached - work.start :]
    for decided in verdict.blocks:
        block = block.reveal(decided.reveals, decided.steps)
        if block.visible_end(params, work.prompt_tokens, info.eos_token_ids)[1] is not None:
            return None
        if block.full:
            commit, block = commit + list(block.tokens), block.following()
    return dataclasses.replace(
        work,
        start=verdict.cached,
        commit=commit,
        block=block,
        gamma=tokens_to_draft(params, block) if params.needs_draft else 0,
        proposal=verdict.proposal,
    )
