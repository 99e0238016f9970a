"""Compares decode time with its arithmetic floor: the time of the matrix products of the same forwards alone."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simsd.eval.datasets import Item
from simsd.forward.runner import CompiledRunner
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams
from simsd.models.model import BlockDiffusionModel
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.ratios import ratio
from simsd_bench.measure.rounds import Forward, Sizes, Window, decode_together, prompts_of

METHODS = ("vanilla-static", "simsd")


class Products:
    """Runs the products of every linear layer, and of the head for the rows that want logits, on inputs that are ready.

    On a CPU, the runner "compile" is compared with oneDNN on packed weights. Other runners are compared with F.linear
    on weights in the layout of `BlockDiffusionModel.prepare`.
    """

    def __init__(self) -> None:
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self.weights: dict[int, list[Tensor]] = {}
        self.met: set[tuple[int, torch.Size, bool]] = set()

    @torch.inference_mode()
    def seconds(self, forwards: Sequence[Forward]) -> float:
        """Return the seconds of these forwards' products, run one after the other."""
        calls = [call for forward in forwards for call in self._of(forward)]
        on_gpu = any(weight.is_cuda for _, weight in calls)
        for x, weight in calls:  # a kernel is made at the first call with its shape, which is not timed
            shape = len(x), weight.shape, weight.is_mkldnn
            if shape not in self.met:
                self.met.add(shape)
                _product(x, weight)
        began = time.perf_counter()
        for x, weight in calls:
            _product(x, weight)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def _of(self, forward: Forward) -> list[tuple[Tensor, Tensor]]:
        model = forward.worker.model
        if id(model) not in self.weights:
            weights = [*layers(model), model.head]
            if isinstance(forward.worker.runner, CompiledRunner):
                weights = [torch.ops.mkldnn._reorder_linear_weight(w.detach().contiguous(), None) for w in weights]
            elif not weights[0].is_cuda:
                weights[:-1] = [w.t().contiguous().t() for w in weights[:-1]]
            self.weights[id(model)] = weights
        *weights, head = self.weights[id(model)]
        calls = [(self._input(forward.rows, weight), weight) for weight in weights]
        return calls + ([(self._input(forward.wanted, head), head)] if forward.wanted else [])

    def _input(self, rows: int, weight: Tensor) -> Tensor:
        """Return random inputs [rows, in] for a weight [out, in]."""
        shape = rows, weight.shape[1]
        if shape not in self.inputs:
            self.inputs[shape] = torch.randn(shape, dtype=weight.dtype, device=weight.device)
        return self.inputs[shape]


def _product(x: Tensor, weight: Tensor) -> Tensor:
    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return F.linear(x, weight)


def layers(model: BlockDiffusionModel) -> list[Tensor]:
    """Return the weights [out, in] of all linear layers but the head."""
    return [m.weight for m in model.modules() if isinstance(m, nn.Linear) and m.weight is not model.head]


class _Line:
    """A row of the table: one method at one batch size, with one runner."""

    def __init__(self, loop: Loop, method: str, params: DecodeParams, prompts: list[list[int]], batch: int) -> None:
        self.loop, self.method, self.params, self.batch = loop, method, params, batch
        self.groups = [prompts[first : first + batch] for first in range(0, len(prompts), batch)]
        self.windows: list[Window] = []
        self.floors: list[float] = []
        began = time.perf_counter()
        self.decode()
        self.warm_up_s = time.perf_counter() - began

    def decode(self) -> Window:
        return Window.sum([decode_together(self.loop, group, self.params) for group in self.groups])

    def measure(self, products: Products) -> None:
        """Time one more decoding, then its products alone."""
        self.windows.append(self.decode())
        self.floors.append(products.seconds(self.windows[-1].forwards))

    def row(self) -> dict[str, Any]:
        times = [window.seconds for window in self.windows]
        rounds, forwards = self.windows[0].rounds, self.windows[0].forwards
        rows = [forward.rows for forward in forwards if forward.worker.info.role == "target"]
        return {
            "batch": self.batch,
            "method": self.method,
            "rounds": rounds,
            "rows_per_target_forward": statistics.fmean(rows),
            "round_ms": 1000 * statistics.median(times) / rounds,
            "floor_ms": 1000 * statistics.median(self.floors) / rounds,
            **ratio("ratio", times, self.floors),
            "warm_up_s": self.warm_up_s,
        }


def run(
    spec: PairSpec,
    asked: Sequence[Item],
    block_size: int,
    runners: Sequence[str],
    sizes: Sizes,
    note: Callable[[str], object],
) -> list[dict[str, Any]]:
    """Return rows for every runner, batch and method; each repeat measures all of them in turn."""
    named = methods(block_size, Protocol(sizes.tokens, random_weights=spec.random_weights is not None))
    lines: list[tuple[str, _Line]] = []
    for runner in runners:
        note(f"floor: first pass with runner {runner}")
        loop = replace(spec, runner=runner).loop(block_size, max(sizes.batches))
        for batch in sizes.batches:
            prompts = prompts_of(loop, asked, max(batch, sizes.alone))
            lines += [(runner, _Line(loop, method, named[method], prompts, batch)) for method in METHODS]
    note(f"floor: {len(lines)} settings, {sizes.repeats} times")
    products = Products()
    for repeat in range(sizes.repeats):
        for _, line in lines[repeat % len(lines) :] + lines[: repeat % len(lines)]:
            line.measure(products)
    return [{"runner": runner} | line.row() for runner, line in lines]
