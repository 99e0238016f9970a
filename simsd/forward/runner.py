"""How a forward is launched, by the setting `runner`.

* `eager` launches one operation at a time, with the shapes of the batch.
* `graph` rounds shapes up to buckets. Each bucket has buffers that are filled before every forward. On CUDA the forward
  of a bucket is captured once and then replayed. On other devices the same code runs without the capture.
* `compile` uses torch.compile. On CUDA each bucket is compiled when it is first needed. On a CPU two graphs for all
  shapes are compiled before the first forward.
"""

import inspect
from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.errors import ConfigError
from simsd.forward.attention import (
    AttentionPlan,
    Biases,
    Group,
    PagedAttention,
    pad_context,
    place,
    plan_attention,
    power_of_two,
)
from simsd.forward.pages import SequenceKV
from simsd.forward.transfer import Packing, to_device
from simsd.models.model import BlockDiffusionModel
from simsd.verification.rows import Rows

MIN_ROWS, MIN_PREFIX = 4, 64
MAX_ROWS = 128
"""A batch runs eagerly if a sequence has more rows than this, as in prefill, which has many shapes and few launches."""

Batch = list[tuple[SequenceKV, Rows]]
Launch = Callable[[Tensor, Tensor, PagedAttention, Tensor], Tensor]


class EagerRunner:
    """Launches one operation at a time.

    kv: the KV tensor of each layer, whose last slot is for padding. scratch_start: the first slot for rows whose KV is
    not kept.
    """

    def __init__(self, model: BlockDiffusionModel, kv: list[Tensor], scratch_start: int) -> None:
        self.model, self.kv, self.scratch_start = model, kv, scratch_start
        self.device = kv[0].device
        self.repeat = model.config.num_attention_heads // model.config.num_key_value_heads
        self.padding_slot = len(kv[0]) - 1
        self.biases = Biases(kv[0], self.repeat)

    def run(self, batch: Batch) -> Tensor:
        """Return the logits [M, V] float32 of the rows that want them, one sequence after the other."""
        firsts = list(accumulate((len(rows) for _, rows in batch), initial=0))
        padding = self._padding(firsts[-1])
        wants = [first + row for first, (_, rows) in zip(firsts, batch, strict=False) for row in rows.wants]
        arrays = [
            _flat((rows.token for _, rows in batch), padding),
            _flat((rows.position for _, rows in batch), padding),
            _flat([wants], self._padding(len(wants))),
        ]
        plan = self._plan(batch, padding)
        tokens, positions, asked, *attention = to_device([*arrays, *plan.arrays], self.device)
        attend = plan.on_device(self.kv, attention, self.biases)
        return self._launch(tokens, positions, attend, asked)[: len(wants)]

    def _padding(self, rows: int) -> int:
        """Return how many padding rows follow the `rows` rows of a batch."""
        return 0

    def _plan(self, batch: Batch, padding: int) -> AttentionPlan:
        return plan_attention(batch, self.scratch_start, self.padding_slot, padding)

    def _launch(self, tokens: Tensor, positions: Tensor, attend: PagedAttention, wants: Tensor) -> Tensor:
        return self.model.logits(self.model(tokens, positions, attend)[wants])


def _flat(parts: Iterable[list[int]], padding: int = 0) -> NDArray[np.int64]:
    """Return the parts one after the other, then `padding` zeros: [N]."""
    return np.array([*chain(*parts), *[0] * padding], np.int64)


class CompiledRunner(EagerRunner):
    """Launches compiled graphs on a CPU: one for a single sequence and one for several, both with dynamic shapes.

    Both graphs are compiled at the start, in about half a minute each. Large batches run eagerly. Weights become
    constants in oneDNN's layout. oneDNN keeps kernels for each number of rows that occurs (3 MB for the shipped
    target), so the numbers of rows are rounded up. `ConfigError` if this torch or compiler cannot do it.
    """

    def __init__(self, model: BlockDiffusionModel, kv: list[Tensor], scratch_start: int) -> None:
        super().__init__(model, kv, scratch_start)
        if "isolate_recompiles" not in inspect.signature(torch.compile).parameters:
            raise ConfigError(f"runner compile needs torch 2.13 or later on a CPU, this is {torch.__version__}")
        for each in kv:
            torch._dynamo.mark_static(each)
        # Without duck shapes, sizes that happen to be equal here may differ later.
        with (
            torch.inference_mode(),
            torch.fx.experimental._config.patch(use_duck_shape=False),  # type: ignore[attr-defined]
            torch._inductor.config.patch(freezing=True),
        ):
            try:
                self._alone, self._together = self._compile(1), self._compile(3)
            except torch._inductor.exc.InductorError as error:
                raise ConfigError(f"runner compile: {str(error).splitlines()[0]}") from error

    def _compile(self, sequences: int) -> Launch:
        """Compile `_launch`. The graph works for all inputs that `_launch` passes to it, so it needs no guards."""
        options: dict[str, str | int | bool | Callable[..., Any]] = {
            "cpp_wrapper": True,
            "guard_filter_fn": torch.compiler.skip_all_guards_unsafe,
        }
        launch: Launch = torch.compile(  # type: ignore[call-overload]
            super()._launch, dynamic=True, fullgraph=True, options=options, isolate_recompiles=True
        )
        rows = Rows(token=[0] * 5, position=[0] * 5, block=[0] * 5, branch=[0] * 5, kind=[0] * 5, tau=[0] * 5)
        batch = [(SequenceKV([], np.zeros(7, np.int64), [0] * 7, 0), rows)] * sequences
        total = 5 * sequences
        padding = self._padding(total)
        plan = self._plan(batch, padding)
        attend = plan.on_device(self.kv, to_device(plan.arrays, self.device), self.biases)
        ids = torch.zeros(total + padding, dtype=torch.int64)
        launch(ids, ids.clone(), attend, ids.clone())
        return launch

    def _padding(self, rows: int) -> int:
        if rows > MAX_ROWS * 4:
            return 0
        return -rows % (4 if rows <= 32 else 16)

    def _launch(self, tokens: Tensor, positions: Tensor, attend: PagedAttention, wants: Tensor) -> Tensor:
        large = len(attend.groups) > 1 or attend.groups[0].bias.shape[2] > self.repeat * MAX_ROWS
        if large or not len(wants):
            return super()._launch(tokens, positions, attend, wants)
        launch = self._alone if len(attend.groups[0].table) == 1 else self._together
        return launch(tokens, positions, attend, wants)

    def _plan(self, batch: Batch, padding: int) -> AttentionPlan:
        """Plan with `rows` and `packed` in every case, because a plan without them would need another graph."""
        small = all(len(rows) <= MAX_ROWS for _, rows in batch)
        plan = plan_attention(batch, self.scratch_start, self.padding_slot, padding, one_group=small)
        group = plan.groups[0]
        if group.rows is None:
            group.packed = np.arange(len(plan.slots))
            group.rows = group.packed.reshape(len(group.table), -1)
        return plan


class Bucket:
    """One static shape: S sequences of R rows over prefixes of L tokens.

    All inputs are in one buffer on the device, which one copy fills. tokens, positions, slots, wants: [S * R] int64.
    table: [S, L + R] int64. unseen: [S, R, L + R] bool, whether a row does not see a slot. `launch` runs the forward
    and fills `hidden`, the hidden states [S * R, hidden size].
    """

    hidden: Tensor
    launch: Callable[[], object]

    def __init__(self, shape: tuple[int, int, int], device: torch.device) -> None:
        self.shape = shape
        count, size, prefix = shape
        flat, table = np.zeros(count * size, np.int64), np.zeros((count, prefix + size), np.int64)
        unseen = np.zeros((count, size, prefix + size), np.bool_)
        self._packing = Packing([flat, flat, flat, flat, table, unseen])
        self.buffer = torch.zeros(self._packing.bytes, dtype=torch.uint8, device=device)
        views = self._packing.views(self.buffer)
        self.tokens, self.positions, self.slots, self.wants, self.table, self.unseen = views

    def fill(self, batch: Batch, scratch_start: int, padding_slot: int) -> int:
        """Fill the inputs for `batch`, and return how many rows want logits."""
        count, size, prefix = self.shape
        members = place(batch, scratch_start)
        facts = np.zeros((4, count, size), np.int64)
        facts[2] = padding_slot
        for i, (_, _, rows, slots) in enumerate(members):
            facts[0, i, : len(rows)], facts[1, i, : len(rows)], facts[2, i, : len(rows)] = (
                rows.token,
                rows.position,
                slots,
            )
        wants = [i * size + row for i, (_, rows) in enumerate(batch) for row in rows.wants]
        facts[3].reshape(-1)[: len(wants)] = wants
        host = self._packing.host_buffer(self.buffer.device)
        self._packing.fill(host, [*facts, *pad_context(members, count, size, prefix)])
        self.buffer.copy_(host, non_blocking=True)
        return len(wants)


class StaticRunner(EagerRunner):
    """Launches forwards with static shapes, with a bucket for each shape that has occurred.

    compiled: whether the forward of a bucket is compiled by torch.compile.
    """

    def __init__(self, model: BlockDiffusionModel, kv: list[Tensor], scratch_start: int, compiled: bool) -> None:
        super().__init__(model, kv, scratch_start)
        self.buckets: dict[tuple[int, int, int], Bucket] = {}
        self._forward = torch.compile(self._step, dynamic=False) if compiled else self._step

    def run(self, batch: Batch) -> Tensor:
        rows = max(len(rows) for _, rows in batch)
        if rows > MAX_ROWS:
            return super().run(batch)
        prefix = max(sequence.length for sequence, _ in batch)
        shape = (power_of_two(len(batch)), max(MIN_ROWS, power_of_two(rows)), max(MIN_PREFIX, power_of_two(prefix)))
        bucket = self.buckets.get(shape) or Bucket(shape, self.device)
        wants = bucket.fill(batch, self.scratch_start, self.padding_slot)
        if shape not in self.buckets:
            self._capture(bucket)
            self.buckets[shape] = bucket
        bucket.launch()
        return self.model.logits(bucket.hidden[bucket.wants[:wants]])

    def _step(self, bucket: Bucket) -> Tensor:
        attend = PagedAttention(self.kv, bucket.slots, [Group(bucket.table, self.biases.of(bucket.unseen))])
        return self.model(bucket.tokens, bucket.positions, attend)

    def _capture(self, bucket: Bucket) -> None:
        """Make the bucket's `launch`. Its buffers are filled already, so that the trial runs use valid slots."""
        bucket.hidden = self._forward(bucket).clone()
        if self.device.type != "cuda":
            bucket.launch = lambda: bucket.hidden.copy_(self._forward(bucket))
            return
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            bucket.hidden = self._forward(bucket)
        bucket.launch = graph.replay


def make_runner(name: str, model: BlockDiffusionModel, kv: list[Tensor], scratch_start: int) -> EagerRunner:
    """Make the runner that the setting `runner` names."""
    if name == "eager":
        return EagerRunner(model, kv, scratch_start)
    if name == "compile" and not kv[0].is_cuda:
        return CompiledRunner(model, kv, scratch_start)
    return StaticRunner(model, kv, scratch_start, compiled=name == "compile")
