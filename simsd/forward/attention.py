"""Attention of rows over paged prefixes, behind the one interface the models call (`simsd.models.layers.Attend`).

A forward writes the KV of all its rows first: commits into their sequence's pages, the others into scratch slots. Each
sequence then attends to one list of slots, its prefix and its rows. Sequences of like row counts share a padded call.
What a forward needs is put together on the host, by numpy, whose small operations cost less than torch's.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from simsd.forward.pages import SequenceKV
from simsd.verification.rows import Rows
from simsd.verification.visibility import hidden as hidden_rows


@dataclass(slots=True)
class Group:
    """Sequences attended to together: S of them, R rows at most, L slots at most.

    table [S, L] int64 slots · bias [S, 1, G * R, L], 0 or -inf, once per query head of a KV head ·
    rows [S, R] int64 into the flat rows · packed [n] int64 into S * R: the group's n flat rows · where [n] int64: where
    these lie. Padding repeats row 0. `rows` and `packed` are None where the flat rows are S times R already, `where` if
    there is no other group.
    """

    table: Tensor
    bias: Tensor
    rows: Tensor | None = None
    packed: Tensor | None = None
    where: Tensor | None = None


class PagedAttention:
    """One forward's `Attend`. `kv`: of each layer [slots, 2, Hkv, D]; `slots` [N] int64 is where each row's KV goes."""

    def __init__(self, kv: list[Tensor], slots: Tensor, groups: list[Group]) -> None:
        self.kv, self.slots, self.groups = kv, slots, groups

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, H, D], k and v [N, Hkv, D] -> [N, H * D]."""
        kv = self.kv[layer]
        kv.index_copy_(0, self.slots, torch.stack((k, v), dim=1).to(kv.dtype))
        if len(self.groups) == 1:
            return self._attend(kv, q, self.groups[0])
        out = q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])
        for group in self.groups:
            out[group.where] = self._attend(kv, q, group)
        return out

    def _attend(self, kv: Tensor, q: Tensor, group: Group) -> Tensor:
        """q [N, H, D], all flat rows -> [n, H * D]. Query heads of one KV head become rows, so KV is never repeated."""
        q = q.unflatten(0, (group.table.shape[0], -1)) if group.rows is None else q[group.rows]
        sequences, rows, heads, head_dim = q.shape
        # Four to five times as fast as kv[table], on a CPU.
        context = kv.index_select(0, group.table.flatten()).unflatten(0, group.table.shape)  # [S, L, 2, Hkv, D]
        keys, values = context[:, :, 0].transpose(1, 2), context[:, :, 1].transpose(1, 2)
        kv_heads = keys.shape[1]
        folded = q.view(sequences, rows, kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
        folded = folded.reshape(sequences, kv_heads, -1, head_dim)
        out = F.scaled_dot_product_attention(folded.to(keys.dtype), keys, values, attn_mask=group.bias)
        out = out.view(sequences, kv_heads, -1, rows, head_dim).permute(0, 3, 1, 2, 4)
        out = out.reshape(sequences * rows, heads * head_dim).to(q.dtype)
        return out if group.packed is None else out[group.packed]


Member = tuple[int, SequenceKV, Rows, NDArray[np.int64]]
"""A sequence in a group: its first flat row, what the pool knows of it, its rows, the slots of these rows."""


def pad_context(
    members: list[Member], count: int, size: int, longest: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of a group of `count` sequences with `size` rows over prefixes of up to `longest` tokens, all slots and who does
    not see which: (table [count, L], hidden [count, size, L]) with L = longest + size.

    All three are at least what `members` have; what is missing is padding, which sees the first slot alone.
    """
    table = np.zeros((count, longest + size), np.int64)
    hidden = np.ones((count, size, longest + size), np.bool_)
    for i, (_, sequence, rows, slots) in enumerate(members):
        prefix, behind = len(sequence.tokens), longest + len(rows)
        table[i, :prefix] = sequence.slots[:prefix]
        table[i, longest:behind] = slots
        hidden[i, :, :prefix] = False
        hidden[i, : len(rows), longest:behind] = hidden_rows(rows)
        hidden[i, len(rows) :, 0] = False
    hidden[len(members) :, :, 0] = False
    return table, hidden


class Biases:
    """What is added to attention weights: 0 where a row sees a slot, -inf where it does not."""

    def __init__(self, kv: Tensor, repeat: int) -> None:
        """In the type of `kv` and on its device; `repeat` query heads share a KV head."""
        self._hidden, self._seen, self._repeat = kv.new_full((), float("-inf")), kv.new_zeros(()), repeat

    def of(self, hidden: Tensor) -> Tensor:
        """hidden [S, R, L] bool -> [S, 1, repeat * R, L], in one launch."""
        sequences, rows, slots = hidden.shape
        every_head = hidden[:, None, None].expand(sequences, 1, self._repeat, rows, slots)
        return torch.where(every_head, self._hidden, self._seen).reshape(sequences, 1, self._repeat * rows, slots)


@dataclass(slots=True)
class GroupPlan:
    """A `Group` on the host, before its bias is made of `hidden` [S, R, L]."""

    table: NDArray[np.int64]
    hidden: NDArray[np.bool_]
    rows: NDArray[np.int64] | None = None
    packed: NDArray[np.int64] | None = None
    where: NDArray[np.int64] | None = None


@dataclass(slots=True)
class AttentionPlan:
    """Everything about a forward's attention that does not depend on the layer, on the host."""

    slots: NDArray[np.int64]
    groups: list[GroupPlan]

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """What the device needs."""
        groups = [(group.table, group.hidden, group.rows, group.packed, group.where) for group in self.groups]
        return [self.slots, *(array for group in groups for array in group if array is not None)]

    def on_device(self, kv: list[Tensor], arrays: list[Tensor], biases: Biases) -> PagedAttention:
        """`arrays`: those above, on kv's device."""
        slots, *left = arrays
        groups = []
        for plan in self.groups:
            table, hidden = left.pop(0), left.pop(0)
            index = [None if each is None else left.pop(0) for each in (plan.rows, plan.packed, plan.where)]
            groups.append(Group(table, biases.of(hidden), *index))
        return PagedAttention(kv, slots, groups)


def _plan_group(members: list[Member], alone: bool, total: int) -> GroupPlan:
    """`alone`: the only group; `total` flat rows in the whole forward."""
    counts = [len(rows) for _, _, rows, _ in members]
    size = max(counts)
    longest = max(len(sequence.tokens) for _, sequence, _, _ in members)
    plan = GroupPlan(*pad_context(members, len(members), size, longest))
    if not alone or size * len(members) != sum(counts) or sum(counts) != total:
        first = np.array([first for first, _, _, _ in members])[:, None]
        real = np.arange(size) < np.array(counts)[:, None]
        plan.rows = np.where(real, first + np.arange(size), 0)
        plan.packed = real.ravel().nonzero()[0]
        if alone:
            plan.packed = np.pad(plan.packed, (0, total - len(plan.packed)))
        else:
            plan.where = plan.rows[real]
    return plan


def plan_attention(
    batch: list[tuple[SequenceKV, Rows]],
    scratch_start: int,
    padding_slot: int,
    padding: int = 0,
    one_group: bool = False,
) -> AttentionPlan:
    """Of rows that are flat in the order of `batch`, with `padding` rows behind them, which write to `padding_slot`.

    `scratch_start` is the first scratch slot. `one_group`: whatever it costs in padding.
    """
    members = place(batch, scratch_start)
    buckets: dict[int, list[Member]] = {}
    for member in members:
        # Powers of two bound the padding: no sequence is padded to more than twice its rows, down to 16.
        size = 0 if one_group else max(16, power_of_two(len(member[2])))
        buckets.setdefault(size, []).append(member)
    total = sum(len(rows) for _, rows in batch) + padding
    groups = [_plan_group(bucket, len(buckets) == 1, total) for bucket in buckets.values()]
    slots = np.concatenate([*(slots for _, _, _, slots in members), np.full(padding, padding_slot)])
    return AttentionPlan(slots, groups)


def place(batch: list[tuple[SequenceKV, Rows]], scratch_start: int) -> list[Member]:
    """Where each row's KV goes: commits into the sequence's own next slots, the others into scratch."""
    members: list[Member] = []
    first, scratch = 0, scratch_start
    for sequence, rows in batch:
        done, loose = len(sequence.tokens), len(rows) - rows.kept
        slots = np.concatenate((sequence.slots[done : done + rows.kept], np.arange(scratch, scratch + loose)))
        members.append((first, sequence, rows, slots))
        first, scratch = first + len(rows), scratch + loose
    return members


def power_of_two(n: int) -> int:
    """The smallest one that is at least `n`."""
    return 1 << (n - 1).bit_length()
