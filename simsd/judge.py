"""From the logits of a verify forward to verdicts: each sequence by its own rule, the tensor work of all at once."""

import torch
from torch import Tensor

from simsd.accept import add_bonus, denoise_step, judge_draft, rejection, walk
from simsd.sampling import RowParams, filtered_log_probs, score
from simsd.tasks import Task
from simsd.types import Verdict


def judge(tasks: list[Task], logits: Tensor) -> dict[str, Verdict]:
    """logits [M, V], the wanted rows of all tasks in order -> what each sequence reveals."""
    verdicts = {task.work.seq_id: Verdict(0) for task in tasks}
    wanted = [want for task in tasks for want in task.wanted]
    assert logits.shape[0] == len(wanted)
    if not wanted:
        return verdicts
    params = RowParams.build(wanted, logits.device)
    log_probs = filtered_log_probs(logits, params)
    _, scores = score(log_probs, params)
    first = 0
    for task in tasks:
        task.shift(first)
        first += len(task.wanted)
    tests = _rejection_tests([t for t in tasks if t.proposal and t.work.params.method == "simsd"], log_probs, params)
    for task in tasks:
        work, verdict = task.work, verdicts[task.work.seq_id]
        if not task.states:
            continue
        if task.proposal is None:
            verdict.reveals = denoise_step(work.params, work.step, len(work.block), task.states[0], scores)
            verdict.steps = 1
            if work.params.method == "simsd":
                verdict.fallback = len(verdict.reveals)
        elif work.params.method == "exact":
            walk(verdict, work.params, work.step, len(work.block), task.proposal, task.states, scores)
        elif judge_draft(verdict, task.proposal, *tests[work.seq_id]):
            add_bonus(verdict, task.undrafted(), scores)
    return verdicts


def _rejection_tests(
    tasks: list[Task], log_probs: Tensor, params: RowParams
) -> dict[str, tuple[list[bool], list[int]]]:
    """Per sequence, in step order: whether each drafted token stands, and what would replace it."""
    if not tasks:
        return {}
    device = log_probs.device
    proposals = [task.proposal for task in tasks if task.proposal]
    rows = torch.tensor([row for task in tasks for row in task.tested_rows()], device=device)
    tokens = torch.tensor([token for proposal in proposals for token in proposal.tokens], device=device)
    width = max(proposal.q_ids.shape[1] for proposal in proposals)
    q_ids = torch.zeros(len(rows), width, dtype=torch.int64)
    q_probs = torch.zeros(len(rows), width)
    first = 0
    for proposal in proposals:
        count, k = proposal.q_ids.shape
        q_ids[first : first + count, :k] = torch.from_numpy(proposal.q_ids.copy())
        q_probs[first : first + count, :k] = torch.from_numpy(proposal.q_probs.copy())
        first += count
    stands, instead = rejection(log_probs[rows], params.select(rows), tokens, q_ids.to(device), q_probs.to(device))
    flags, replacements = stands.tolist(), instead.tolist()
    tests, first = {}, 0
    for task, proposal in zip(tasks, proposals, strict=True):
        last = first + len(proposal.offsets)
        tests[task.work.seq_id] = (flags[first:last], replacements[first:last])
        first = last
    return tests
