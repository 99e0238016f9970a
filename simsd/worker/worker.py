"""The worker, which owns a device, a model's weights and its KV pages, and knows sequences by their ids.

A worker runs what the loop asks for. Only `verify_next` derives the next round itself (`simsd.block.successor`).

* A draft has `propose`, which drafts tokens with their step order, and `propose_ahead`, which drafts the blocks after
  those that it proposed as if these were accepted.
* A target has `verify`, which runs the forward and the accept rules, so that only verdicts leave it, and `verify_next`,
  which runs the round after the last one without being asked for it in detail.
* Both have `release`.
"""

import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simsd.block.successor import next_work, tokens_to_draft
from simsd.config import WorkerConfig
from simsd.decoding.draft import Drafting, draft_step
from simsd.decoding.verdicts import judge, look_at, undecided
from simsd.forward.pages import PagePool, SequenceKV, kv_tensors
from simsd.forward.runner import make_runner
from simsd.messages.round import Ahead, DraftCost, DraftedAhead, Proposal, Proposals, Verdict, Verdicts, Work
from simsd.messages.worker import PageUse
from simsd.models.description import available_device, describe, dtype_on
from simsd.models.files import resolve_model
from simsd.models.loading import load_model, weights_hash
from simsd.models.model import BlockDiffusionModel
from simsd.verification.rows import Rows
from simsd.verification.schemes import Limits, Want, links_of

if TYPE_CHECKING:
    from simsd.worker.tensor_parallel import Ranks


Load = Callable[[Path, str, torch.dtype, str], BlockDiffusionModel]
"""Loads a model from a checkpoint's directory, its name, a dtype and a device."""


class Worker:
    """One model on one device, with its pages. A lock serialises the calls.

    Two arguments serve measurements only: `aligned` False is the paper's ablation of position ids (section 4), and
    `load` may return a model without trained weights.
    """

    def __init__(
        self, config: WorkerConfig, aligned: bool = True, load: Load = load_model, ranks: "Ranks | None" = None
    ) -> None:
        """Load the model and allocate its pages. ranks: the processes that share the model, if there are several.

        Raises `CheckpointError` for unusable files, and `ConfigError` for settings that do not fit the model or device.
        """
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
        self.info = dataclasses.replace(
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
        self._ahead: dict[str, DraftedAhead] = {}
        self._cost_ahead = DraftCost()
        self._last: list[tuple[Work, Verdict]] = []

    @torch.inference_mode()
    def propose(self, batch: list[Work]) -> Proposals:
        """Draft for each sequence whose KV is complete. Tokens to commit go with the first forward.

        A sequence that lacks more only commits, and gets no proposal. A proposal that was drafted ahead is returned
        without a forward if it answers its work.
        """
        began = time.perf_counter()
        with self._lock:
            ready = self._take_ahead(batch)
            tasks = self._sync([work for work in batch if work.seq_id not in ready])
            drafts = {
                task.work.seq_id: Drafting(task.work, task.work.block, task.work.gamma)
                for task in tasks
                if task.ready and task.work.block is not None and task.work.gamma
            }
            cost = self._draft(tasks, drafts)
            self._proposed = ready | {seq_id: draft.proposal() for seq_id, draft in drafts.items()}
            ahead_s = self._cost_ahead.elapsed_s
            cost.elapsed_s = time.perf_counter() - began
            cost += self._cost_ahead
            self._cost_ahead = DraftCost()
            return Proposals(
                items=self._proposed,
                cached={work.seq_id: self._cached(work.seq_id) for work in batch},
                took_part=dict(cost.took_part),
                forwards=cost.forwards,
                rows=cost.rows,
                elapsed_s=cost.elapsed_s,
                ahead_s=ahead_s,
            )

    @torch.inference_mode()
    def propose_ahead(self, batch: list[Work]) -> Ahead:
        """Draft the blocks after each proposed chain, as if that were accepted, while the target verifies it.

        batch: works of the last `propose` whose whole block was drafted. Their tokens to commit are committed. The
        assumed blocks are not. The next `propose` uses what was drafted ahead and includes its cost. A caller that uses
        the result itself says so by `take_ahead`.
        """
        began = time.perf_counter()
        with self._lock:
            # A sequence may have been released by now. It must not be opened again.
            batch = [work for work in batch if work.seq_id in self.pool.sequences]
            assumed = {work.seq_id: self._assumed(work) for work in batch}
            tasks = self._sync(batch, assumed)
            drafts = {
                task.work.seq_id: draft
                for task in tasks
                if (draft := self._behind(task, assumed[task.work.seq_id])) is not None
            }
            cost = self._draft(tasks, drafts)
            cost.elapsed_s = time.perf_counter() - began
            self._cost_ahead += cost
            items = {
                seq_id: DraftedAhead(draft.work, assumed[seq_id], draft.proposal()) for seq_id, draft in drafts.items()
            }
            self._ahead |= items
            return Ahead(items, {seq_id: self._cached(seq_id) for seq_id in drafts}, cost)

    def take_ahead(self, batch: list[Work]) -> None:
        """Note that what was drafted ahead for these works is now their proposal, and its cost has been counted."""
        with self._lock:
            self._proposed = self._take_ahead(batch)
            self._cost_ahead = DraftCost()

    def _take_ahead(self, batch: list[Work]) -> dict[str, Proposal]:
        """Return what was drafted ahead for exactly these works, and forget it."""
        drafted = [(work, self._ahead.pop(work.seq_id, None)) for work in batch]
        return {work.seq_id: ahead.proposal for work, ahead in drafted if ahead and ahead.serves(work)}

    def _assumed(self, work: Work) -> list[int]:
        """Return the tokens of the whole blocks that were proposed last, as if all of them were accepted."""
        proposal = self._proposed.get(work.seq_id)
        if work.block is None or proposal is None:
            return []
        filled = [block.with_tokens(drafted.entries()) for block, drafted in links_of(work.block, proposal)]
        return [token for tokens in filled if self.info.mask_token_id not in tokens for token in tokens]

    def _behind(self, task: "Task", assumed: list[int]) -> Drafting | None:
        """Return the drafting behind the last proposal; None if there is none, or the answer ends in it.

        assumed: the result of `_assumed`.
        """
        work, proposal = task.work, self._proposed.get(task.work.seq_id)
        if not task.ready or work.block is None or proposal is None:
            return None
        block, drafted = links_of(work.block, proposal)[-1]
        filled = block.reveal(drafted.entries(), 0)
        if not filled.full:
            return None
        if filled.visible_end(work.params, work.prompt_tokens, self.info.eos_token_ids)[1] is not None:
            return None
        block = filled.following()
        work = dataclasses.replace(work, block=block, gamma=tokens_to_draft(work.params, block))
        return Drafting(work, block, work.gamma, assumed)

    def _draft(self, tasks: list["Task"], drafts: dict[str, Drafting]) -> DraftCost:
        """Make all draft steps of `drafts`. The commit rows of `tasks` go with the first step."""
        cost = DraftCost()
        while True:
            wants: list[Want] = []
            stepping = []
            for task in tasks:
                draft = drafts.get(task.work.seq_id)
                if draft and draft.goes_on:
                    draft.lay(task.rows, wants, task.kv.length + len(task.commits))
                    stepping.append(draft)
            tasks = [task for task in tasks if len(task.rows)]
            if not tasks:
                return cost
            logits, ran = self._forward(tasks)
            draft_step(stepping, wants, logits, self.info)
            cost.took_part.update(task.work.seq_id for task in tasks)
            cost.forwards, cost.rows = cost.forwards + ran, cost.rows + sum(len(task.rows) for task in tasks)
            tasks = [Task(task.work, task.kv, Rows(), []) for task in tasks]

    @torch.inference_mode()
    def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        """Run one forward over the whole batch, whatever phase each sequence is in, then the accept rule of each.

        The rows may need several forwards if there are more than `max_rows`.
        """
        with self._lock:
            return self._verify(batch, proposals)

    @torch.inference_mode()
    def verify_next(self, ahead: Ahead | None) -> Verdicts | None:
        """Run the round after the last one, with all its sequences; None if one of them cannot go on."""
        with self._lock:
            planned = self.next_round(ahead)
            return self._verify(*planned) if planned else None

    def next_round(self, ahead: Ahead | None) -> tuple[list[Work], Proposals | None] | None:
        """Return what the loop would ask for next: works, and the proposals in `ahead` for them.

        It is None if only the loop can tell what comes next, or `ahead` lacks a proposal.
        """
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
        self._last = []  # It must be empty if this round fails.
        wants: list[Want] = []
        tasks = self._sync(batch)
        asked = [(task.work, task.rows) for task in tasks if task.ready]
        looks = look_at(asked, proposals.items if proposals else {}, Limits(self.info.max_rows, self.aligned), wants)
        tasks = [task for task in tasks if len(task.rows)]
        logits, forwards = self._forward(tasks) if tasks else (torch.empty(0), 0)
        judged = judge(looks, wants, logits, self.info)
        ran = {task.work.seq_id for task in tasks}
        verdicts = {}
        for work in batch:
            held, decided = self.pool.sequences.get(work.seq_id), judged.get(work.seq_id)
            blocks = decided.blocks if decided else []
            if blocks and proposals and (proposal := proposals.items.get(work.seq_id)):
                rest = proposal.blocks[len(blocks) :]
                blocks = blocks + undecided(work, rest) if rest else blocks
            verdicts[work.seq_id] = Verdict(
                cached=len(held.tokens) if held else 0,
                blocks=blocks,
                prefix_hit=held.prefix_hit if held else 0,
                draft_cached=proposals.cached.get(work.seq_id) if proposals else None,
                proposal=decided.proposal if decided else None,
                target_forwards=int(work.seq_id in ran),
                draft_forwards=proposals.took_part.get(work.seq_id, 0) if proposals else 0,
            )
        self._last = [(work, verdicts[work.seq_id]) for work in batch]
        return Verdicts(
            items=verdicts,
            target_forwards=forwards,
            target_rows=sum(len(task.rows) for task in tasks),
            target_s=time.perf_counter() - began,
            draft_forwards=proposals.forwards if proposals else 0,
            draft_rows=proposals.rows if proposals else 0,
            draft_s=proposals.elapsed_s if proposals else 0.0,
            ahead_s=proposals.ahead_s if proposals else 0.0,
        )

    def release(self, seq_ids: list[str]) -> None:
        """Free the pages of these sequences. Unknown ids are ignored."""
        with self._lock:
            for seq_id in seq_ids:
                self.pool.release(seq_id)
                self._ahead.pop(seq_id, None)
                self._proposed.pop(seq_id, None)

    def release_all(self) -> None:
        """Free the pages of all sequences, for instance because the loop that held them is gone."""
        self.release(list(self.pool.sequences))

    def page_use(self, check: bool = True) -> PageUse:
        """Return how the pages are used. With `check`, `InternalError` if the pool's counts are wrong."""
        with self._lock:
            if check:
                self.pool.check_integrity()
            return self.pool.use()

    def _cached(self, seq_id: str) -> int:
        held = self.pool.sequences.get(seq_id)
        return len(held.tokens) if held else 0

    def _sync(self, batch: list[Work], assumed: dict[str, list[int]] | None = None) -> list["Task"]:
        """Return a task with its commit rows for each work, and open sequences that are new.

        Assumed blocks that stand now are committed without rows. If the worker then lacks at most one block before the
        open block, all is committed; else as much as the limit allows.
        A sequence gets no task if the worker does not hold what the work says (`Work.start`).

        assumed: the tokens of whole blocks behind those of the work that are still taken for granted, by sequence id.
        """
        tasks, block_size = [], self.info.block_size
        for work in batch:
            kv = self.pool.sequences.get(work.seq_id)
            if kv is None and work.start == 0:
                kv = self.pool.open(work.seq_id, work.total_tokens, work.commit)
            if kv is None or not work.start <= len(kv.tokens) <= work.start + len(work.commit):
                continue
            taken = assumed.get(work.seq_id, []) if assumed else []
            if kv.assumed:
                self.pool.settle(kv, work.commit[len(kv.tokens) - work.start :], taken, block_size)
            owed = work.commit[len(kv.tokens) - work.start :]
            ready = work.block is not None and len(owed) <= block_size
            commits = owed if ready else owed[: work.commit_limit // block_size * block_size]
            task = Task(work, kv, Rows(), commits, ready)
            task.rows.commit(commits, len(kv.tokens), block_size)
            tasks.append(task)
        return tasks

    def _forward(self, tasks: list["Task"]) -> tuple[Tensor, int]:
        """Run the rows of the tasks, and keep the KV of committed and assumed ones.

        Returns the logits [M, V] of all rows that want them, in order, and the number of forwards.
        """
        logits, parts = [], self._parts(tasks)
        for part in parts:
            logits.append(self.runner.run([(task.kv, task.rows) for task in part]))
            for task in part:
                self.pool.advance(task.kv, task.commits)
                task.kv.assumed = task.kv.assumed + [task.rows.token[row] for row in task.rows.assumed]
        return torch.cat(logits) if len(logits) > 1 else logits[0], len(parts)

    def _parts(self, tasks: list["Task"]) -> list[list["Task"]]:
        """Split `tasks` into forwards of at most `max_rows` rows, in order; normally there is one."""
        parts: list[list[Task]] = [[]]
        total = 0
        for task in tasks:
            if total + len(task.rows) > self.info.max_rows and parts[-1]:
                parts.append([])
                total = 0
            parts[-1].append(task)
            total += len(task.rows)
        return parts


@dataclass(slots=True)
class Task:
    """One sequence's part of a forward.

    kv: what the pool knows about the sequence. rows: its rows, of which those of `commits`, the tokens to commit, come
    first. ready: whether the open block can come with the same forward.
    """

    work: Work
    kv: SequenceKV
    rows: Rows
    commits: list[int]
    ready: bool = True
