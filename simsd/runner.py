"""How a forward is launched: op by op, or with static shapes from preallocated buffers.

eager: shapes are those of the batch. graph: shapes are rounded up to buckets, each with buffers that are filled before
every forward; on CUDA the forward of a bucket is captured once and replayed, elsewhere it is the same code without the
capture. compile: by torch.compile, which takes some twenty seconds for each new kind of batch; on CUDA as graph,
elsewhere with the shapes of the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from simsd.attention import Group, PagedAttention, pad_context, place, plan_attention, power_of_two
from simsd.kv_cache import SequenceKV
from simsd.models.sdar import SDARForCausalLM
from simsd.rows import Rows

MIN_ROWS, MIN_PREFIX = 4, 64
MAX_ROWS = 128
"""Rows of one sequence beyond which a batch runs eagerly: prefill, whose shapes are many and launches few."""

Batch = list[tuple[SequenceKV, Rows]]


class EagerRunner:
    """`scratch_start`: first slot for rows whose KV is not kept; the last slot of `kv` is for padding."""

    def __init__(self, model: SDARForCausalLM, kv: Tensor, scratch_start: int) -> None:
        self.model, self.kv, self.scratch_start = model, kv, scratch_start
        self.repeat = model.config.num_attention_heads // model.config.num_key_value_heads

    def run(self, batch: Batch) -> Tensor:
        """Hidden states [N, hidden] of all rows, those of each sequence after the other."""
        attend = plan_attention(self.kv, batch, self.scratch_start, self.repeat)
        return self._launch(self._flat(batch, "token"), self._flat(batch, "position"), attend)

    def _launch(self, tokens: Tensor, positions: Tensor, attend: PagedAttention) -> Tensor:
        return self.model(tokens, positions, attend)

    def _flat(self, batch: Batch, fact: str) -> Tensor:
        return torch.tensor([value for _, rows in batch for value in getattr(rows, fact)], device=self.kv.device)


class CompiledRunner(EagerRunner):
    """One graph for one sequence and one for several, each with sizes that vary; what is rare or large runs eagerly."""

    def __init__(self, model: SDARForCausalLM, kv: Tensor, scratch_start: int) -> None:
        super().__init__(model, kv, scratch_start)
        # Or sizes that happen to be equal in the first batch are taken to be so in all.
        torch.fx.experimental._config.use_duck_shape = False
        # Frozen weights are constants, laid out as the CPU's matrix products want them.
        self._compiled = torch.compile(model, dynamic=True, options={"freezing": True})

    def _launch(self, tokens: Tensor, positions: Tensor, attend: PagedAttention) -> Tensor:
        small = len(attend.groups) == 1 and attend.groups[0].bias.shape[2] <= self.repeat * MAX_ROWS
        return (self._compiled if small else self.model)(tokens, positions, attend)


@dataclass(slots=True)
class Bucket:
    """Buffers of one static shape: S sequences of R rows over prefixes of L tokens. `launch` fills `hidden`.

    hidden [S * R, hidden]; tokens, positions, slots [S * R] int64; table [S, L + R]; bias [S, 1, G * R, L + R].
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    table: Tensor
    bias: Tensor
    hidden: Tensor = field(init=False)
    launch: Callable[[], object] = field(init=False)


class StaticRunner(EagerRunner):
    """A bucket for each shape that was met."""

    def __init__(self, model: SDARForCausalLM, kv: Tensor, scratch_start: int, compiled: bool) -> None:
        super().__init__(model, kv, scratch_start)
        self.buckets: dict[tuple[int, int, int], Bucket] = {}
        self._forward = torch.compile(self._step, dynamic=False) if compiled else self._step

    def run(self, batch: Batch) -> Tensor:
        rows = max(len(rows) for _, rows in batch)
        if rows > MAX_ROWS:
            return super().run(batch)
        prefix = max(len(sequence.tokens) for sequence, _ in batch)
        shape = (power_of_two(len(batch)), max(MIN_ROWS, power_of_two(rows)), max(MIN_PREFIX, power_of_two(prefix)))
        bucket = self.buckets.get(shape)
        if bucket is None:
            bucket = self.buckets[shape] = self._allocate(*shape)
            self._fill(bucket, batch, shape)
            self._capture(bucket)
        else:
            self._fill(bucket, batch, shape)
        bucket.launch()
        real = [i * shape[1] + row for i, (_, rows) in enumerate(batch) for row in range(len(rows))]
        return bucket.hidden[torch.tensor(real, device=self.kv.device)]

    def _allocate(self, count: int, size: int, prefix: int) -> Bucket:
        def ids(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int64, device=self.kv.device)

        bias = torch.zeros(count, 1, self.repeat * size, prefix + size, dtype=self.kv.dtype, device=self.kv.device)
        return Bucket(ids(count * size), ids(count * size), ids(count * size), ids(count, prefix + size), bias)

    def _fill(self, bucket: Bucket, batch: Batch, shape: tuple[int, int, int]) -> None:
        count, size, prefix = shape
        members = place(batch, self.scratch_start)
        table, bias = pad_context(members, count, size, prefix, self.repeat, self.kv.dtype)
        facts = torch.zeros(3, count, size, dtype=torch.int64)
        facts[2] = self.kv.shape[1] - 1
        for i, (_, _, rows, slots) in enumerate(members):
            facts[0, i, : len(rows)] = torch.tensor(rows.token)
            facts[1, i, : len(rows)] = torch.tensor(rows.position)
            facts[2, i, : len(rows)] = slots
        for buffer, values in zip((bucket.tokens, bucket.positions, bucket.slots), facts, strict=True):
            buffer.copy_(values.flatten(), non_blocking=True)
        bucket.table.copy_(table, non_blocking=True)
        bucket.bias.copy_(bias, non_blocking=True)

    def _step(self, bucket: Bucket) -> Tensor:
        attend = PagedAttention(self.kv, bucket.slots, [Group(bucket.table, bucket.bias)])
        return self.model(bucket.tokens, bucket.positions, attend)

    def _capture(self, bucket: Bucket) -> None:
        """Make the bucket's `launch`; its buffers are filled, so that a trial run reads and writes what it may."""
        bucket.hidden = self._forward(bucket).clone()
        if not self.kv.is_cuda:
            bucket.launch = lambda: bucket.hidden.copy_(self._forward(bucket))
            return
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            bucket.hidden = self._forward(bucket)
        bucket.launch = graph.replay


def make_runner(name: str, model: SDARForCausalLM, kv: Tensor, scratch_start: int) -> EagerRunner:
    """By the name of the setting `runner`."""
    if name == "eager":
        return EagerRunner(model, kv, scratch_start)
    if name == "compile" and not kv.is_cuda:
        return CompiledRunner(model, kv, scratch_start)
    return StaticRunner(model, kv, scratch_start, compiled=name == "compile")
