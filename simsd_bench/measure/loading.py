"""Measures how long loading a checkpoint takes, and how much host memory it needs beside the weights.

    python -m simsd_bench.measure.loading

It makes a random checkpoint of real size in several shards in a temporary folder, and loads it in processes of their
own. `--path` and `--loader` measure another version of the package, unpacked in another place. The results are in
docs/results/loading.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from simsd.models.checkpoint import FLOATS, layout_of, load_model_config, read_headers
from simsd.models.sdar import ARCHITECTURE

LOADER = "simsd.models.loading:load_model"
SHAPE = {
    "architectures": [ARCHITECTURE],
    "vocab_size": 65536,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "block_size": 4,
    "mask_token_id": 3,
}
SHARDS = 4
CHILD = """
import importlib, json, pathlib, sys, time, torch
directory, loader, dtype = sys.argv[1:]
module, name = loader.split(":")
load = getattr(importlib.import_module(module), name)
torch.set_num_threads(1)
def memory(name):
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in status if line.startswith(name))
before = memory("VmRSS")
began, worked = time.perf_counter(), time.process_time()
model = load(pathlib.Path(directory), dtype=getattr(torch, dtype))
seconds, worked = time.perf_counter() - began, time.process_time() - worked
peak = memory("VmHWM")
weights = sum(each.numel() * each.element_size() for each in model.parameters())
print(json.dumps({"seconds": seconds, "cpu_seconds": worked, "peak": peak - before, "weights": weights}))
"""
"""Code that loads once. `peak` is the peak of resident memory, with mapped files, minus what the imports have taken."""


def write_checkpoint(directory: Path, **changes: int) -> None:
    """Write random bfloat16 weights of SHAPE, with some settings changed, in SHARDS files of about the same size."""
    (directory / "config.json").write_text(json.dumps(SHAPE | changes))
    generator = torch.Generator().manual_seed(0)
    shapes = layout_of(load_model_config(directory)).shapes()
    weight_map: dict[str, str] = {}
    for number, keys in enumerate(_shards(shapes), start=1):
        name = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        save_file(
            {key: torch.randn(shapes[key], generator=generator).mul_(0.02).bfloat16() for key in keys}, directory / name
        )
        weight_map |= dict.fromkeys(keys, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def _shards(shapes: dict[str, tuple[int, ...]]) -> Iterator[list[str]]:
    total, filled = sum(map(prod, shapes.values())), 0
    shards: list[list[str]] = [[] for _ in range(SHARDS)]
    for key, shape in shapes.items():
        shards[min(SHARDS - 1, filled * SHARDS // total)].append(key)
        filled += prod(shape)
    return iter(shards)


def load_once(directory: Path, loader: str, path: Path, dtype: str) -> dict[str, float]:
    """Load once in a process of its own; returns wall and CPU seconds, and the bytes of the peak and the weights."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(directory), loader, dtype],
        env=os.environ | {"PYTHONPATH": str(path)},
        cwd=path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(directory: Path, loader: str, path: Path, dtype: str, repeats: int) -> dict[str, Any]:
    """Return the medians over `repeats` processes."""
    runs = [load_once(directory, loader, path, dtype) for _ in range(repeats)]
    stored = read_headers(directory).values()
    largest = max(prod(each.shape) * FLOATS[each.dtype] for each in stored)
    median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    peak, weights = median["peak"], median["weights"]
    return {
        "dtype": dtype,
        "seconds": round(median["seconds"], 2),
        "cpu_seconds": round(median["cpu_seconds"], 2),
        "weights_mb": round(weights / 1e6),
        "peak_mb": round(peak / 1e6),
        "beside_weights_mb": round((peak - weights) / 1e6),
        "of_largest_tensor": round((peak - weights) / largest, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m simsd_bench.measure.loading", description=__doc__.split("\n\n")[0])
    parser.add_argument("--path", type=Path, default=Path.cwd(), help="where the package is (default: here)")
    parser.add_argument("--loader", default=LOADER, help=f"its function (default {LOADER})")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each dtype (default 3)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        write_checkpoint(Path(directory))
        stored = read_headers(Path(directory)).values()
        sizes = [prod(each.shape) * FLOATS[each.dtype] for each in stored]
        print(
            f"{sum(sizes) / 1e6:.0f} MB in {SHARDS} shards; the largest tensor has {max(sizes) / 1e6:.0f} MB",
            flush=True,
        )
        for dtype in ("bfloat16", "float32"):
            print(json.dumps(measure(Path(directory), args.loader, args.path, dtype, args.repeats)), flush=True)


if __name__ == "__main__":
    main()
