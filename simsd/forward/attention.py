"""Attention of rows over paged prefixes, behind the interface that the models call (`simsd.models.layers.Attend`).

A layer first writes the KV of all rows: that of committed and assumed rows into the pages of their sequence, the rest
into scratch slots. Each sequence then attends to one list of slots, which are its prefix and its own rows. Sequences
with similar numbers of rows share a padded call. The inputs are built on the host by NumPy, whose small operations cost
less than torch's.
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
    """S sequences that share one attention call, with at most R rows and L slots each.

    table: [S, L] int64, the slots that each sequence attends to.
    bias: [S, 1, G * R, L], 0 or -inf, repeated for the G query heads of a KV head.
    rows: [S, R] int64, the index of each row among the forward's flat rows; padding repeats row 0.
    packed: [n] int64, the indices in S * R of the group's n flat rows.
    where: [n] int64, the indices of the group's rows among the forward's flat rows.

    `rows` and `packed` are None if the flat rows have the shape S * R already. `where` is None if there is only one
    group.
    """

    table: Tensor
    bias: Tensor
    rows: Tensor | None = None
    packed: Tensor | None = None
    where: Tensor | None = None


class PagedAttention:
    """The `Attend` of one forward.

    kv: for each layer, [slots, 2, Hkv, D]. slots: [N] int64, the slot to which the KV of each row is written.
    """

    def __init__(self, kv: list[Tensor], slots: Tensor, groups: list[Group]) -> None:
        self.kv, self.slots, self.groups = kv, slots, groups

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [N, Hkv, D], and return the attention of q [N, H, D]: [N, H * D]."""
        kv = self.kv[layer]
        kv.index_copy_(0, self.slots, torch.stack((k, v), dim=1).to(kv.dtype))
        if len(self.groups) == 1:
            return self._attend(kv, q, self.groups[0])
        out = q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])
        for group in self.groups:
            out[group.where] = self._attend(kv, q, group)
        return out

    def _attend(self, kv: Tensor, q: Tensor, group: Group) -> Tensor:
        """Return the attention of a group's n rows, [n, H * D]. q: [N, H, D], all flat rows.

        The query heads of one KV head are treated as rows, so that KV is never repeated.
        """
        q = q.unflatten(0, (group.table.shape[0], -1)) if group.rows is None else q[group.rows]
        sequences, rows, heads, head_dim = q.shape
        # On a CPU, index_select is four to five times as fast as kv[table].
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
"""A sequence in a group: the index of its first flat row, its KV, its rows, and the slots of these rows [R]."""


def pad_context(
    members: list[Member], count: int, size: int, longest: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the slots of a group, [count, L], and whether a row does not see a slot, [count, size, L].

    L is longest + size. The group is padded to `count` sequences of `size` rows over prefixes of `longest` tokens,
    which are at least as many as `members` have. Padding rows see the first slot only.
    """
    table = np.zeros((count, longest + size), np.int64)
    hidden = np.ones((count, size, longest + size), np.bool_)
    for i, (_, sequence, rows, slots) in enumerate(members):
        prefix, behind = sequence.length, longest + len(rows)
        table[i, :prefix] = sequence.slots[:prefix]
        table[i, longest:behind] = slots
        hidden[i, :, :prefix] = False
        hidden[i, : len(rows), longest:behind] = hidden_rows(rows)
        hidden[i, len(rows) :, 0] = False
    hidden[len(members) :, :, 0] = False
    return table, hidden


class Biases:
    """Makes attention biases: 0 where a row sees a slot, -inf where it does not."""

    def __init__(self, kv: Tensor, repeat: int) -> None:
        """The biases have the type and the device of `kv`. repeat: the number of query heads that share a KV head."""
        self._hidden, self._seen, self._repeat = kv.new_full((), float("-inf")), kv.new_zeros(()), repeat

    def of(self, hidden: Tensor) -> Tensor:
        """Return the biases [S, 1, repeat * R, L] for hidden [S, R, L] bool, in one kernel launch."""
        sequences, rows, slots = hidden.shape
        every_head = hidden[:, None, None].expand(sequences, 1, self._repeat, rows, slots)
        return torch.where(every_head, self._hidden, self._seen).reshape(sequences, 1, self._repeat * rows, slots)


@dataclass(slots=True)
class GroupPlan:
    """A `Group` on the host, with `hidden` [S, R, L] in place of the bias that is made from it."""

    table: NDArray[np.int64]
    hidden: NDArray[np.bool_]
    rows: NDArray[np.int64] | None = None
    packed: NDArray[np.int64] | None = None
    where: NDArray[np.int64] | None = None


@dataclass(slots=True)
class AttentionPlan:
    """The inputs of a forward's attention, on the host; they are the same for all layers.

    slots: [N] int64, the slot to which the KV of each row is written.
    """

    slots: NDArray[np.int64]
    groups: list[GroupPlan]

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The arrays that the device needs, in the order that `on_device` expects."""
        groups = [(group.table, group.hidden, group.rows, group.packed, group.where) for group in self.groups]
        return [self.slots, *(array for group in groups for array in group if array is not None)]

    def on_device(self, kv: list[Tensor], arrays: list[Tensor], biases: Biases) -> PagedAttention:
        """Return the forward's attention. arrays: those of the property `arrays`, on the device of `kv`."""
        slots, *left = arrays
        groups = []
        for plan in self.groups:
            table, hidden = left.pop(0), left.pop(0)
            index = [None if each is None else left.pop(0) for each in (plan.rows, plan.packed, plan.where)]
            groups.append(Group(table, biases.of(hidden), *index))
        return PagedAttention(kv, slots, groups)


def _plan_group(members: list[Member], alone: bool, total: int) -> GroupPlan:
    """Plan one group. alone: whether it is the only one. total: the number of flat rows in the whole forward."""
    counts = [len(rows) for _, _, rows, _ in members]
    size = max(counts)
    longest = max(sequence.length for _, sequence, _, _ in members)
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
    """Plan the attention of a forward whose flat rows are those of `batch`, in order, and then `padding` more rows.

    scratch_start: the first scratch slot. padding_slot: the slot to which padding rows write their KV. one_group:
    whether all sequences form one group, however much padding that takes.
    """
    members = place(batch, scratch_start)
    buckets: dict[int, list[Member]] = {}
    for member in members:
        # Powers of two bound the padding: no sequence is padded to twice its rows or more, beyond 16 rows.
        size = 0 if one_group else max(16, power_of_two(len(member[2])))
        buckets.setdefault(size, []).append(member)
    total = sum(len(rows) for _, rows in batch) + padding
    groups = [_plan_group(bucket, len(buckets) == 1, total) for bucket in buckets.values()]
    slots = np.concatenate([*(slots for _, _, _, slots in members), np.full(padding, padding_slot)])
    return AttentionPlan(slots, groups)


def place(batch: list[tuple[SequenceKV, Rows]], scratch_start: int) -> list[Member]:
    """Assign a slot to each row: the sequence's own to committed and assumed rows, scratch slots to the others."""
    members: list[Member] = []
    first, scratch = 0, scratch_start
    for sequence, rows in batch:
        done, loose = sequence.length, len(rows) - rows.kept - len(rows.assumed)
        slots = np.concatenate((sequence.slots[done : done + rows.kept], np.arange(scratch, scratch + loose)))
        if rows.assumed:
            own = sequence.slots[[rows.position[row] for row in rows.assumed]]
            slots = np.insert(slots, np.array(rows.assumed) - np.arange(len(own)), own)
        members.append((first, sequence, rows, slots))
        first, scratch = first + len(rows), scratch + loose
    return members


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`, which must be 1 or more."""
    return 1 << (n - 1).bit_length()
