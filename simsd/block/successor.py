"""What comes after a round of a sequence, as the loop will find (`Sequence.apply`): the target need not wait for it."""

import dataclasses

from simsd.messages.request import DecodeParams
from simsd.messages.round import Verdict, Work
from simsd.messages.worker import WorkerInfo


def only_loop_knows(params: DecodeParams) -> bool:
    """Whether nobody else can tell what comes after a round: the loop routes and adapts.

    It also sees stop strings; behind one a round may follow that is dropped, as behind a client that leaves.
    """
    return params.method == "s2d2" or (params.adaptive and params.needs_draft)


def tokens_to_draft(params: DecodeParams, left: int, fresh: bool) -> int:
    """Of the `left` open positions of a block, those that the draft is asked for; 0: the target denoises by itself.

    The paper falls back to the target once fewer than gamma are left; in a block that is `fresh`, which a prompt's tail
    may have opened, they are drafted as far as it is open.
    """
    if params.method == "simsd" and params.fallback == "target" and left < params.gamma and not fresh:
        return 0
    return min(params.gamma, left)


def next_work(work: Work, verdict: Verdict, info: WorkerInfo) -> Work | None:
    """The target's work in the round after `verdict`; None where only the loop can tell, or nothing comes."""
    params = work.params
    if only_loop_knows(params) or work.forced or not verdict.reveals:
        return None
    block = list(work.block)
    for offset, token in verdict.reveals:
        block[offset] = token
    committed = work.commit[verdict.cached - work.start :]
    begin = verdict.cached + len(committed)
    closed = block.index(info.mask_token_id) if info.mask_token_id in block else len(block)
    answer = block[max(0, work.prompt_tokens - begin) : closed]
    ends = not params.ignore_eos and any(token in info.eos_token_ids for token in answer)
    if ends or begin + closed >= work.prompt_tokens + params.max_tokens:
        return None
    step, fresh = work.step + verdict.steps, closed == len(block)
    if fresh:
        committed, block, step = committed + block, [info.mask_token_id] * len(block), 0
    return dataclasses.replace(
        work,
        start=verdict.cached,
        commit=committed,
        block=block,
        step=step,
        gamma=tokens_to_draft(params, block.count(info.mask_token_id), fresh) if params.needs_draft else 0,
        proposal=verdict.proposal,
    )
