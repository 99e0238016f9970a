"""Decode time over its arithmetic floor: the matrix products of the very forwards that were decoded with, alone."""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from simsd.bench.methods import Protocol, methods
from simsd.bench.pair import PairSpec
from simsd.bench.ratios import ratio
from simsd.bench.rounds import Forward, Sizes, Window, decode_together, prompts_of
from simsd.eval.datasets import Item
from simsd.loop import Loop
from simsd.models.layers import Linear
from simsd.models.sdar import SDARForCausalLM
from simsd.types import DecodeParams

METHODS = ("vanilla-static", "simsd")


Product = Callable[[Tensor], Tensor]


class Products:
    """The product of every linear layer, and of the head for the rows that want logits, on inputs that lie ready.

    Of a model that a runner has left as it was loaded, those on a CPU are as fast as a prepared model's all the same.
    """

    def __init__(self) -> None:
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self.layers: dict[int, list[Linear]] = {}

    @torch.inference_mode()
    def seconds(self, forwards: Sequence[Forward]) -> float:
        """Time of these forwards' products, one after the other."""
        calls = [call for forward in forwards for call in self._of(forward)]
        on_gpu = any(x.is_cuda for x, _ in calls)
        began = time.perf_counter()
        for x, product in calls:
            product(x)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def _of(self, forward: Forward) -> list[tuple[Tensor, Product]]:
        model = forward.worker.model
        weight = model.model.embed_tokens.weight
        if id(model) not in self.layers:
            self.layers[id(model)] = [_fast(layer) for layer in layers(model)]
        calls: list[tuple[Tensor, Product]] = [
            (self._input(forward.rows, layer.in_features, weight), layer) for layer in self.layers[id(model)]
        ]
        wanted = self._input(forward.wanted, weight.shape[1], weight)
        return calls + ([(wanted, model.logits)] if forward.wanted else [])

    def _input(self, rows: int, width: int, like: Tensor) -> Tensor:
        """[rows, width] of noise."""
        if (rows, width) not in self.inputs:
            self.inputs[rows, width] = torch.randn((rows, width), dtype=like.dtype, device=like.device)
        return self.inputs[rows, width]


def layers(model: SDARForCausalLM) -> list[Linear]:
    """All linear layers but the head."""
    return [module for module in model.modules() if isinstance(module, Linear) and module is not model.lm_head]


def _fast(layer: Linear) -> Linear:
    if layer.weight.device.type != "cpu" or layer.weight.dtype != torch.float32 or layer.weight.is_mkldnn:
        return layer
    fast = copy.deepcopy(layer)
    fast.prepare()
    return fast


class _Line:
    """A line of the table: one method in one batch by one runner."""

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
        """Decode once more, then the products alone."""
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
    """Rows of every runner, batch and method; each repeat has all of them in turn."""
    named = methods(block_size, Protocol("latency", sizes.tokens))
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
