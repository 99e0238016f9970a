"""A worker owns a device, a model's weights and its pages, and knows sequences by id. It runs rows; the
loop decides, but for what follows from a round in one way only (`simsd/block/successor.py`).

draft:  propose(batch)            -> candidates and their step order
        propose_ahead(batch)      -> candidates for the block after, should what was proposed stand
target: verify(batch, proposals)  -> what stands (forward and accept, so only verdicts leave)
        verify_next(ahead)        -> the round after that, without a word from the loop
both:   release(ids)
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simsd.block.successor import next_work
from simsd.config import WorkerConfig
from simsd.decoding.draft import Ahead, DraftCost, DraftState, Foreseen, draft_step
from simsd.decoding.tasks import Task
from simsd.decoding.verdicts import judge
from simsd.forward.pages import PagePool, kv_tensors
from simsd.forward.runner import make_runner
from simsd.messages.round import Proposal, Proposals, Verdict, Verdicts, Work
from simsd.messages.worker import PageUse
from simsd.models.description import available_device, describe, dtype_on
from simsd.models.files import resolve_model
from simsd.models.loading import load_model, weights_hash
from simsd.models.model import BlockDiffusionModel

if TYPE_CHECKING:
    from simsd.worker.tensor_parallel import Ranks


Load = Callable[[Path, str, torch.dtype, str], BlockDiffusionModel]
"""From a checkpoint's directory, its name, a dtype and a device to a model."""


class Worker:
    """Calls are serialised by a lock. For measurement only: `aligned` False is the paper's ablation of position ids,
    and `load` may give a model that has no trained weights.
    """

    def __init__(
        self, config: WorkerConfig, aligned: bool = True, load: Load = load_model, ranks: "Ranks | None" = None
    ) -> None:
        """`ranks`: the processes that share the model, if there are several."""
        if config.threads:
            torch.set_num_threads(config.threads)
        self.aligned = aligned
        path = resolve_model(config.model, config.role)
        info = describe(config, path)
        self.device = available_device(config)
        dtype: torch.dtype = getattr(torch, dtype_on(config, self.device))
        if ranks is None:
            self.model = load(path, config.model, dtype, self.device)
        else:
            self.model = load_model(path, config.model, dtype, self.device, ranks.rank, ranks.size)
            self.model.reduce_over(ranks.sum)
        self.info = replace(
            info,
            weights_hash=weights_hash(self.model),
            device=self.device,
            dtype=str(dtype).removeprefix("torch."),
        )
        if self.device == "cpu" and dtype == torch.float32 and config.runner != "compile":
            self.model.prepare()
        shape = self.model.config
        self.pool = PagePool(info.pages, info.page_size, config.prefix_cache)
        self.kv = kv_tensors(
            shape.num_hidden_layers,
            info.pages,
            info.page_size,
            info.max_rows,
            shape.num_key_value_heads,
            shape.head_dim,
            dtype,
            self.device,
        )
        self.runner = make_runner(config.runner, self.model, self.kv, info.pages * info.page_size)
        self._lock = threading.Lock()
        self._proposed: dict[str, Proposal] = {}
        self._foreseen: dict[str, Foreseen] = {}
        self._cost_ahead = DraftCost()
        self._last: list[tuple[Work, Verdict]] = []

    @torch.inference_mode()
    def propose(self, batch: list[Work]) -> Proposals:
        """Draft for each sequence that is caught up; what is owed is committed in the first forward."""
        began = time.perf_counter()
        with self._lock:
            ready: dict[str, Proposal] = {}
            for work in batch:
                foreseen = self._foreseen.pop(work.seq_id, None)
                if foreseen and foreseen.serves(work):
                    ready[work.seq_id] = foreseen.proposal
            tasks = self._sync([work for work in batch if work.seq_id not in ready])
            states = {
                task.work.seq_id: DraftState(task.work.params, list(task.work.block), task.work.gamma)
                for task in tasks
                if task.ready and task.work.gamma
            }
            cost = self._draft(tasks, states)
            self._proposed = ready | {seq_id: state.proposal() for seq_id, state in states.items()}
            ahead_cost, self._cost_ahead = self._cost_ahead, DraftCost()
            return Proposals(
                items=self._proposed,
                cached={work.seq_id: self._cached(work.seq_id) for work in batch},
                took_part=dict(cost.took_part + ahead_cost.took_part),
                forwards=cost.forwards + ahead_cost.forwards,
                rows=cost.rows + ahead_cost.rows,
                elapsed_s=time.perf_counter() - began + ahead_cost.elapsed_s,
                ahead_s=ahead_cost.elapsed_s,
            )

    @torch.inference_mode()
    def propose_ahead(self, batch: list[Work]) -> Ahead:
        """Draft the block after each one just proposed, as if that stood, while the target looks at it.

        batch: works of the last `propose` that had their whole block drafted. What they owe is committed; the assumed
        block is not, its rows come with each draft step, so nothing has to be taken back. The next `propose` takes what
        it can use, and tells the cost; or the caller does, and says so by `take_ahead`.
        """
        began = time.perf_counter()
        with self._lock:
            # A sequence may be finished and gone by now: none is opened here.
            tasks = self._sync([work for work in batch if work.seq_id in self.pool.sequences])
            states = {}
            for task in tasks:
                proposal = self._proposed.get(task.work.seq_id)
                if task.ready and proposal is not None and self._goes_on(task, proposal):
                    task.assume(proposal)
                    states[task.work.seq_id] = DraftState(task.work.params, list(task.work.block), task.work.gamma)
            cost = self._draft(tasks, states)
            for task in tasks:
                if state := states.get(task.work.seq_id):
                    self._foreseen[task.work.seq_id] = Foreseen(task.work, task.assumed, state.proposal())
            cost.elapsed_s = time.perf_counter() - began
            self._cost_ahead += cost
            items = {seq_id: self._foreseen[seq_id] for seq_id in states}
            return Ahead(items, {seq_id: self._cached(seq_id) for seq_id in states}, cost)

    def take_ahead(self, batch: list[Work]) -> None:
        """What was drafted ahead for these is what they have been proposed now, its cost told."""
        with self._lock:
            self._proposed = {}
            for work in batch:
                foreseen = self._foreseen.pop(work.seq_id, None)
                if foreseen and foreseen.serves(work):
                    self._proposed[work.seq_id] = foreseen.proposal
            self._cost_ahead = DraftCost()

    def _goes_on(self, task: Task, proposal: Proposal) -> bool:
        """Whether another block follows if `proposal` stands."""
        ends = not task.work.params.ignore_eos and any(token in self.info.eos_token_ids for token in proposal.tokens)
        return not ends and task.start + 2 * self.info.block_size <= task.work.total_tokens

    def _draft(self, tasks: list[Task], states: dict[str, DraftState]) -> DraftCost:
        """All draft steps of `states`; commit rows of `tasks` go with the first."""
        cost = DraftCost()
        for step in range(self.info.block_size + 1):
            for task in tasks:
                state = states.get(task.work.seq_id)
                if state and state.owed(step):
                    task.denoise(state.block)
            tasks = [task for task in tasks if len(task.rows)]
            if not tasks:
                break
            logits, ran = self._forward(tasks)
            draft_step(tasks, states, logits, step)
            cost.took_part.update(task.work.seq_id for task in tasks)
            cost.forwards, cost.rows = cost.forwards + ran, cost.rows + sum(len(task.rows) for task in tasks)
            tasks = [task.again() for task in tasks]
        return cost

    @torch.inference_mode()
    def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        """One forward over the whole batch, whatever each sequence is doing, then the accept rule of each."""
        with self._lock:
            return self._verify(batch, proposals)

    @torch.inference_mode()
    def verify_next(self, ahead: Ahead | None) -> Verdicts | None:
        """The round after the last one, with all its sequences, from where that left them; None if one cannot go on."""
        with self._lock:
            planned = self.next_round(ahead)
            return self._verify(*planned) if planned else None

    def next_round(self, ahead: Ahead | None) -> tuple[list[Work], Proposals | None] | None:
        """What the loop would ask for next: works, and what of `ahead` they need. None if it has to be asked itself."""
        batch = []
        for before, verdict in self._last:
            work = next_work(before, verdict, self.info)
            if work is None or work.seq_id not in self.pool.sequences:
                return None
            batch.append(work)
        if not batch:
            return None
        drafting = [work for work in batch if work.gamma]
        proposals = ahead.proposals(drafting) if drafting and ahead else None
        return (batch, proposals) if proposals or not drafting else None

    def _verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        began = time.perf_counter()
        self._last = []  # also if this fails
        tasks = self._sync(batch)
        for task in tasks:
            proposal = task.work.proposal
            if proposals:
                proposal = proposals.items.get(task.work.seq_id, proposal)
            if not task.ready:
                continue
            if task.work.forced:
                task.force()
            elif proposal is not None:
                task.speculate(proposal, self.info.max_rows, self.aligned)
            elif not task.work.gamma:
                task.denoise(task.work.block)
            # else the draft is not caught up: the sequence waits, so that its answer does not depend on timing
        tasks = [task for task in tasks if len(task.rows)]
        logits, forwards = self._forward(tasks) if tasks else (torch.empty(0), 0)
        judged = judge(tasks, logits)
        for work in batch:
            verdict = judged.setdefault(work.seq_id, Verdict(0))
            held = self.pool.sequences.get(work.seq_id)
            verdict.cached = len(held.tokens) if held else 0
            verdict.prefix_hit = held.prefix_hit if held else 0
            if proposals:
                verdict.draft_cached = proposals.cached.get(work.seq_id)
                verdict.draft_forwards = proposals.took_part.get(work.seq_id, 0)
        for task in tasks:
            judged[task.work.seq_id].target_forwards = 1
        self._last = [(work, judged[work.seq_id]) for work in batch]
        return Verdicts(
            items=judged,
            target_forwards=forwards,
            target_rows=sum(len(task.rows) for task in tasks),
            target_s=time.perf_counter() - began,
            draft_forwards=proposals.forwards if proposals else 0,
            draft_rows=proposals.rows if proposals else 0,
            draft_s=proposals.elapsed_s if proposals else 0.0,
            ahead_s=proposals.ahead_s if proposals else 0.0,
        )

    def release(self, seq_ids: list[str]) -> None:
        """Give the pages of these sequences back; unknown ids are fine."""
        with self._lock:
            for seq_id in seq_ids:
                self.pool.release(seq_id)
                self._foreseen.pop(seq_id, None)
                self._proposed.pop(seq_id, None)

    def release_all(self) -> None:
        """Give all pages back: whoever held the sequences is gone."""
        self.release(list(self.pool.sequences))

    def page_use(self, check: bool = True) -> PageUse:
        """Raises `InternalError` if the pool's books are wrong, unless `check` is False."""
        with self._lock:
            if check:
                self.pool.check_integrity()
            return self.pool.use()

    def _cached(self, seq_id: str) -> int:
        held = self.pool.sequences.get(seq_id)
        return len(held.tokens) if held else 0

    def _sync(self, batch: list[Work]) -> list[Task]:
        """Tasks with their commit rows. A sequence whose cached length is not what the loop thinks gets none."""
        tasks = []
        for work in batch:
            kv = self.pool.sequences.get(work.seq_id)
            if kv is None and work.start == 0:
                kv = self.pool.open(work.seq_id, work.total_tokens, work.commit)
            end = work.start + len(work.commit)
            if kv is not None and work.start <= len(kv.tokens) <= end:
                task = Task(work, kv, end, self.info.mask_token_id)
                task.commit(work.commit_limit, self.info.block_size)
                tasks.append(task)
        return tasks

    def _forward(self, tasks: list[Task]) -> tuple[Tensor, int]:
        """Run the tasks' rows and keep the committed KV. -> (logits [M, V] of all wanted rows in order, forwards)."""
        logits = []
        parts = self._parts(tasks)
        for part in parts:
            logits.append(self.runner.run([(task.kv, task.rows) for task in part]))
            for task in part:
                self.pool.advance(task.kv, task.commits)
        out = torch.cat(logits) if len(logits) > 1 else logits[0]
        out[:, self.info.mask_token_id] = float("-inf")
        self._adjust(out, tasks)
        return out, len(parts)

    def _adjust(self, logits: Tensor, tasks: list[Task]) -> None:
        """What requests ask of the logits themselves, in place: biases, and no EOS before `min_tokens`."""
        first = 0
        for task in tasks:
            params, last = task.work.params, first + len(task.wanted)
            if params.logit_bias:
                ids, biases = zip(*params.logit_bias, strict=True)
                logits[first:last, list(ids)] += torch.tensor(biases, dtype=logits.dtype, device=logits.device)
            if params.min_tokens:
                allowed_from = task.work.prompt_tokens + params.min_tokens
                early = [first + i for i, (_, position, _) in enumerate(task.wanted) if position < allowed_from]
                logits[self._ids(early).unsqueeze(1), self._ids(list(self.info.eos_token_ids))] = float("-inf")
            first = last

    def _ids(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def _parts(self, tasks: list[Task]) -> list[list[Task]]:
        """`tasks` in as few forwards as `max_rows` allows; normally one."""
        parts: list[list[Task]] = [[]]
        total = 0
        for task in tasks:
            if total + len(task.rows) > self.info.max_rows and parts[-1]:
                parts.append([])
                total = 0
            parts[-1].append(task)
            total += len(task.rows)
        return parts
