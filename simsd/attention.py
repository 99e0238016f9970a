"""Attention of rows over paged prefixes, behind the one interface the models call (`simsd.models.layers.Attend`).

A forward writes the KV of all its rows first: commits into their sequence's pages, the others into scratch slots. Each
sequence then attends to one list of slots, its prefix and its rows. Sequences of like row counts share a padded call.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simsd.kv_cache import SequenceKV
from simsd.rows import Rows, visibility


@torch.library.custom_op("simsd::write_kv", mutates_args=("kv",))
def write_kv(kv: Tensor, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """k and v [N, Hkv, D] into kv [layers, slots, 2, Hkv, D]. For compiled graphs, which would copy all of `kv`."""
    kv[layer].index_copy_(0, slots, torch.stack((k, v), dim=1).to(kv.dtype))


@dataclass(slots=True)
class Group:
    """Sequences attended to together: S of them, R rows at most, L slots at most.

    table [S, L] int64 slots · bias [S, 1, G * R, L], 0 or -inf, once per query head of a KV head ·
    rows [S, R] int64 into the flat rows (padding repeats row 0) · packed [n] int64 into S * R and where [n] int64 into
    the flat rows: the n rows that are no padding. The last three are None where the flat rows are S times R already.
    """

    table: Tensor
    bias: Tensor
    rows: Tensor | None = None
    packed: Tensor | None = None
    where: Tensor | None = None


class PagedAttention:
    """One forward's `Attend`. `kv` [layers, slots, 2, Hkv, D]; `slots` [N] int64 is where each row's KV goes."""

    def __init__(self, kv: Tensor, slots: Tensor, groups: list[Group]) -> None:
        self.kv, self.slots, self.groups = kv, slots, groups

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, H, D], k and v [N, Hkv, D] -> [N, H * D]."""
        kv = self.kv[layer]
        if torch.compiler.is_compiling():
            write_kv(self.kv, layer, self.slots, k, v)
        else:
            kv.index_copy_(0, self.slots, torch.stack((k, v), dim=1).to(kv.dtype))
        out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        for group in self.groups:
            if group.rows is None:
                return self._attend(kv, q.unflatten(0, (group.table.shape[0], -1)), group).flatten(0, 1)
            attended = self._attend(kv, q[group.rows], group)
            out[group.where] = attended.flatten(0, 1)[group.packed]
        return out

    def _attend(self, kv: Tensor, q: Tensor, group: Group) -> Tensor:
        """q [S, R, H, D] -> [S, R, H * D]. Query heads of one KV head become rows, so KV is never repeated."""
        sequences, rows, heads, head_dim = q.shape
        # Four to five times as fast as kv[table], on a CPU.
        context = kv.index_select(0, group.table.flatten()).unflatten(0, group.table.shape)  # [S, L, 2, Hkv, D]
        keys, values = context[:, :, 0].transpose(1, 2), context[:, :, 1].transpose(1, 2)
        kv_heads = keys.shape[1]
        folded = q.view(sequences, rows, kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
        folded = folded.reshape(sequences, kv_heads, -1, head_dim)
        out = F.scaled_dot_product_attention(folded.to(keys.dtype), keys, values, attn_mask=group.bias)
        out = out.view(sequences, kv_heads, -1, rows, head_dim).permute(0, 3, 1, 2, 4)
        return out.reshape(sequences, rows, heads * head_dim).to(q.dtype)


Member = tuple[int, SequenceKV, Rows, Tensor]
"""A sequence in a group: its first flat row, what the pool knows of it, its rows, the slots of these rows."""


def _pad(values: list[int], size: int, filler: int) -> list[int]:
    return values + [filler] * (size - len(values))


def _facts(batch: list[Rows], size: int) -> Tensor:
    """[4, S, size] int64: block, branch, kind, tau; padding is a block of its own, so it sees only itself."""
    return torch.tensor(
        [
            [_pad(rows.block, size, -1) for rows in batch],
            [_pad(rows.branch, size, 0) for rows in batch],
            [_pad(rows.kind, size, 0) for rows in batch],
            [_pad(rows.tau, size, 0) for rows in batch],
        ]
    )


def pad_context(
    members: list[Member], count: int, size: int, longest: int, repeat: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(table, bias) of a group of `count` sequences with `size` rows over prefixes of up to `longest` tokens.

    Both are at least what `members` have; what is missing is padding, which sees nothing but itself.
    """
    batch = [rows for _, _, rows, _ in members] + [Rows()] * (count - len(members))
    seen = visibility(*_facts(batch, size))
    prefixes = [len(sequence.tokens) for _, sequence, _, _ in members]
    table = torch.zeros(count, longest + size, dtype=torch.int64)
    for i, (_, sequence, rows, slots) in enumerate(members):
        table[i, : prefixes[i]] = sequence.slots[: prefixes[i]]
        table[i, longest : longest + len(rows)] = slots
    in_prefix = torch.arange(longest) < torch.tensor(_pad(prefixes, count, 0)).unsqueeze(1)
    visible = torch.cat((in_prefix.unsqueeze(1).expand(-1, size, -1), seen), dim=-1)
    bias = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, float("-inf"))
    return table, bias.repeat(1, repeat, 1).unsqueeze(1)


def _group(members: list[Member], total: int, repeat: int, kv: Tensor) -> Group:
    """`total` flat rows in the whole forward; `repeat` query heads share a KV head."""
    device = kv.device
    size = max(len(rows) for _, _, rows, _ in members)
    longest = max(len(sequence.tokens) for _, sequence, _, _ in members)
    table, bias = pad_context(members, len(members), size, longest, repeat, kv.dtype)
    if len(members) == 1 and size == total:
        return Group(table.to(device), bias.to(device))
    index = torch.tensor([_pad(list(range(first, first + len(rows))), size, 0) for first, _, rows, _ in members])
    where = torch.cat([torch.arange(first, first + len(rows)) for first, _, rows, _ in members])
    packed = torch.cat([torch.arange(i * size, i * size + len(m[2])) for i, m in enumerate(members)])
    return Group(table.to(device), bias.to(device), index.to(device), packed.to(device), where.to(device))


def plan_attention(kv: Tensor, batch: list[tuple[SequenceKV, Rows]], scratch_start: int, repeat: int) -> PagedAttention:
    """Everything about a forward that does not depend on the layer, built once.

    `scratch_start` is the first scratch slot; rows are flat in the order of `batch`. `repeat` = H / Hkv.
    """
    members = place(batch, scratch_start)
    buckets: dict[int, list[Member]] = {}
    for member in members:
        # Powers of two bound the padding: no sequence is padded to more than twice its rows, down to 16.
        buckets.setdefault(max(16, power_of_two(len(member[2]))), []).append(member)
    total = sum(len(rows) for _, rows in batch)
    groups = [_group(bucket, total, repeat, kv) for bucket in buckets.values()]
    return PagedAttention(kv, torch.cat([slots for _, _, _, slots in members]).to(kv.device), groups)


def place(batch: list[tuple[SequenceKV, Rows]], scratch_start: int) -> list[Member]:
    """Where each row's KV goes: commits into the sequence's own next slots, the others into scratch."""
    members: list[Member] = []
    first, scratch = 0, scratch_start
    for sequence, rows in batch:
        done, loose = len(sequence.tokens), len(rows) - rows.kept
        slots = torch.cat((sequence.slots[done : done + rows.kept], torch.arange(scratch, scratch + loose)))
        members.append((first, sequence, rows, slots))
        first, scratch = first + len(rows), scratch + loose
    return members


def power_of_two(n: int) -> int:
    """The smallest one that is at least `n`."""
    return 1 << (n - 1).bit_length()
