"""What follows from a verdict: the loop's next round of a sequence, which the target can often tell by itself."""

import dataclasses

from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import Verdict, Work
from simsd.messages.worker import WorkerInfo


def only_loop_knows(params: DecodeParams) -> bool:
    """Whether the loop alone can tell what comes after a round, since it routes (S2D2) or adapts the drafting.

    The loop also sees stop strings and clients that leave. A round that followed such an end is dropped.
    """
    return params.routes or (params.adaptive and params.needs_draft)


def tokens_to_draft(params: DecodeParams, block: BlockState) -> int:
    """How many tokens the draft is asked for in `block`; 0: the target denoises by itself.

    With `fallback: target` the target takes over once fewer than gamma positions are open, as in the paper (section 3).
    A fresh block, which a prompt's tail may have opened, is drafted as far as it is open.
    """
    left = block.left
    if params.method == "simsd" and params.fallback == "target" and left < params.gamma and not block.fresh:
        return 0
    return min(params.gamma, left)


def next_work(work: Work, verdict: Verdict, info: WorkerInfo) -> Work | None:
    """The target's work in the round after `verdict`; None where only the loop can tell, or nothing comes."""
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
