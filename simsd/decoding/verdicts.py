"""From the logits of a verify forward to verdicts: each sequence by its own rule, the tensor work of all at once."""

import torch
from torch import Tensor

from simsd.decoding.accept import Slots, add_bonus, denoise_step, judge_draft, rejection, walk
from simsd.decoding.draft import own_draft
from simsd.decoding.sampling import RowParams, Scores, filtered_log_probs, score
from simsd.decoding.tasks import Task
from simsd.messages.request import TokenLogprob
from simsd.messages.round import Verdict


def judge(tasks: list[Task], logits: Tensor) -> dict[str, Verdict]:
    """logits [M, V], the wanted rows of all tasks in order -> what each sequence reveals."""
    verdicts = {task.work.seq_id: Verdict(0) for task in tasks}
    wanted = [want for task in tasks for want in task.wanted]
    assert logits.shape[0] == len(wanted)
    if not wanted:
        return verdicts
    params = RowParams.build(wanted, logits.device)
    log_probs = filtered_log_probs(logits, params)
    scores = score(log_probs, params)
    first = 0
    for task in tasks:
        task.shift(first)
        first += len(task.wanted)
    tested = [task for task in tasks if task.proposal and task.work.params.method != "exact"]
    tests = _rejection_tests(tested, log_probs, params) if params.any_warm else _greedy_tests(tested, scores)
    for task in tasks:
        work, verdict = task.work, verdicts[task.work.seq_id]
        if not task.states:
            continue
        context = _decide(task, verdict, scores, tests)
        if context is not None and work.params.drafts_itself:
            taken = {offset for offset, _ in verdict.reveals} if work.params.method != "s2d2" else set()
            verdict.proposal = own_draft(work.params, context, taken, log_probs, params, scores)
        if work.report.events and task.proposal is not None:
            verdict.proposed = list(zip(task.proposal.offsets, task.proposal.tokens, strict=True))
    _add_logprobs([(task.work.report.logprobs, verdicts[task.work.seq_id]) for task in tasks], logits)
    return verdicts


def _decide(
    task: Task, verdict: Verdict, scores: Scores, tests: dict[str, tuple[list[bool], list[int]]]
) -> Slots | None:
    """Fill the verdict in by the sequence's rule. -> the rows of the last state, if the target looked at it."""
    work, proposal = task.work, task.proposal
    if work.forced:
        for offset, token in enumerate(work.forced):
            verdict.reveal(offset, token, "denoised", task.states[(1 << offset) - 1].rows[0])
        return None
    if proposal is None:
        for offset, token, row in denoise_step(work.params, work.step, len(work.block), task.states[0], scores):
            verdict.reveal(offset, token, "denoised", row)
        verdict.steps = 1
        verdict.fallback = len(verdict.reveals) if work.params.method == "simsd" else 0
        return task.states[0]
    if work.params.method == "exact":
        return walk(verdict, work.params, work.step, len(work.block), proposal, task.states, scores)
    stood = judge_draft(verdict, proposal, task.tested_rows(), *tests[work.seq_id])
    if work.params.method == "s2d2":
        verdict.steps = 1
        return None
    if not stood:  # of paired rows, none shows the state before the rejected token
        return task.states[(1 << verdict.accepted) - 1] if work.params.layout == "branches" else None
    add_bonus(verdict, work.params, task.undrafted(), scores)
    return task.undrafted()


def _add_logprobs(asked: list[tuple[int | None, Verdict]], logits: Tensor) -> None:
    """Of each reveal of who asked for them, from its logits row; the rows mean nothing outside this forward."""
    asked_rows = [row for top, verdict in asked if top is not None for row in verdict.rows]
    if asked_rows:
        index = torch.tensor(asked_rows, device=logits.device)
        log_probs = logits[index].log_softmax(dim=-1)
        width = max(top or 0 for top, _ in asked)
        values, ids = (each.tolist() for each in log_probs.topk(width, dim=-1))
        tokens = [token for top, verdict in asked if top is not None for _, token in verdict.reveals]
        own = log_probs.gather(1, torch.tensor(tokens, device=logits.device).unsqueeze(1)).squeeze(1).tolist()
        first = 0
        for top, verdict in asked:
            if top is not None:
                last = first + len(verdict.rows)
                verdict.logprobs = [
                    TokenLogprob(own[i], list(zip(ids[i][:top], values[i][:top], strict=True)))
                    for i in range(first, last)
                ]
                first = last
    for _, verdict in asked:
        verdict.rows = []


def _greedy_tests(tasks: list[Task], scores: Scores) -> dict[str, tuple[list[bool], list[int]]]:
    """As `_rejection_tests`, where no row is sampled: what is not the target's best token gives way to that."""
    tests = {}
    for task in tasks:
        assert task.proposal is not None
        best = [scores.token[row] for row in task.tested_rows()]
        tests[task.work.seq_id] = ([a == b for a, b in zip(task.proposal.tokens, best, strict=True)], best)
    return tests


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
