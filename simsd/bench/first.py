"""The first figures: four methods, two block sizes, in process and over HTTP; the best gamma and draft_steps."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from simsd.bench.decode import WARM_UP, Result, Setting, local_pair, measure, questions
from simsd.eval.families import FAMILIES, Question
from simsd.types import DecodeParams

BLOCK_SIZES = (4, 8)
MAX_TOKENS = 128


@dataclass(slots=True)
class Row:
    """One line of the table, as plain numbers for --json."""

    block_size: int
    method: str
    tokens_per_s: float
    ratio: float
    ratio_low: float
    ratio_high: float
    acceptance: float | None
    tokens_per_target_forward: float
    draft_forwards_per_token: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    http_tokens_per_s: float | None = None
    http_decode_tokens_per_s: float | None = None


def sweep_settings(block_size: int) -> list[Setting]:
    """Vanilla static first, to compare with, then gamma and draft_steps."""
    grid = [
        (gamma, steps)
        for gamma in sorted({block_size // 2, block_size * 3 // 4, block_size})
        for steps in sorted({1, 2, block_size // 2, gamma})
        if steps <= gamma
    ]
    drafted = [
        Setting(f"gamma {g}, draft_steps {s}", DecodeParams(max_tokens=MAX_TOKENS, gamma=g, draft_steps=s))
        for g, s in grid
    ]
    return [Setting("vanilla static", DecodeParams(method="vanilla", max_tokens=MAX_TOKENS)), *drafted]


def method_settings(best: DecodeParams) -> list[Setting]:
    return [
        Setting("vanilla static", DecodeParams(method="vanilla", max_tokens=MAX_TOKENS)),
        Setting(
            "vanilla dynamic .9",
            DecodeParams(method="vanilla", remasking="dynamic", threshold=0.9, max_tokens=MAX_TOKENS),
        ),
        Setting("simsd", best),
        Setting("exact", DecodeParams(method="exact", draft_steps=1, max_tokens=MAX_TOKENS)),
    ]


def run(
    n: int, sweep_n: int, http_n: int, threads: int, target: str, draft: str, note: Callable[[str], Any]
) -> dict[str, Any]:
    """Everything; n, sweep_n and http_n are questions a family. `note` is told what is going on."""
    rows: list[Row] = []
    sweeps: dict[int, list[dict[str, Any]]] = {}
    for block_size in BLOCK_SIZES:
        loop = local_pair(block_size, threads, target, draft)
        note(f"B={block_size}: gamma and draft_steps over {4 * sweep_n} prompts")
        tried = measure(loop, questions(sweep_n, seed=12), sweep_settings(block_size))
        sweeps[block_size] = [_sweep_row(result) for result in tried]
        best = max(tried[1:], key=lambda result: result.ratio)
        note(f"B={block_size}: best is {best.setting.name}; methods over {4 * n} prompts")
        results = measure(loop, questions(n), method_settings(best.setting.params))
        found = [_row(block_size, result) for result in results]
        note(f"B={block_size}: over HTTP, {4 * http_n} prompts")
        if http_n:
            with serving(block_size, threads, target, draft) as base_url:
                for row, result in zip(found, results, strict=True):
                    row.http_tokens_per_s, row.http_decode_tokens_per_s = over_http(
                        base_url, questions(http_n), result.setting.params
                    )
        rows += found
    return {
        "machine": machine(threads),
        "questions": {"methods": 4 * n, "sweep": 4 * sweep_n, "http": 4 * http_n, "families": list(FAMILIES)},
        "pair": {"target": target, "draft": draft},
        "sweep": sweeps,
        "rows": [{name: getattr(row, name) for name in Row.__dataclass_fields__} for row in rows],
    }


def _sweep_row(result: Result) -> dict[str, Any]:
    low, high = result.ratio_spread
    return {
        "setting": result.setting.name,
        "tokens_per_s": result.tokens_per_s,
        "ratio": result.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "acceptance": result.acceptance,
        "tokens_per_target_forward": result.tokens_per_target_forward,
    }


def _row(block_size: int, result: Result) -> Row:
    low, high = result.ratio_spread
    params = result.setting.params
    drafting = f" (gamma {params.gamma or 'B'}, draft_steps {params.draft_steps})" if params.draft_steps else ""
    return Row(
        block_size=block_size,
        method=result.setting.name + drafting,
        tokens_per_s=result.tokens_per_s,
        ratio=result.ratio,
        ratio_low=low,
        ratio_high=high,
        acceptance=result.acceptance,
        tokens_per_target_forward=result.tokens_per_target_forward,
        draft_forwards_per_token=result.total("draft_forwards") / result.total("completion_tokens"),
        accuracy=result.accuracy.accuracy,
        accuracy_low=result.accuracy.low,
        accuracy_high=result.accuracy.high,
    )


@contextmanager
def serving(block_size: int, threads: int, target: str, draft: str) -> Iterator[str]:
    """`simsd serve` in a process of its own; yields its URL."""
    command = [sys.executable, "-m", "simsd.cli.main", "serve", "--port", "8411", "--block-size", str(block_size)]
    command += ["--target", target, "--draft", draft, "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if found := re.match(r"ready (http://\S+)", line):
                    yield found.group(1)
                    break
            else:
                raise RuntimeError("simsd serve ended before it was ready")
        finally:
            server.terminate()
            server.wait(timeout=60)


def over_http(base_url: str, asked: list[Question], params: DecodeParams) -> tuple[float, float]:
    """Tokens/s as a client sees them, prefill and HTTP included, and of decoding alone; one request at a time."""
    import httpx

    defaults = DecodeParams()
    names = ("method", "gamma", "draft_steps", "remasking", "threshold")
    extension = {name: getattr(params, name) for name in names if getattr(params, name) != getattr(defaults, name)}
    tokens, wall_s, decode_s = 0, 0.0, 0.0
    with httpx.Client(base_url=base_url, timeout=120) as client:
        for index, question in enumerate([*asked[:WARM_UP], *asked]):
            body = {"messages": [{"role": "user", "content": question.prompt}], "max_tokens": params.max_tokens}
            began = time.perf_counter()
            answer = client.post("/v1/chat/completions", json=body | {"simsd": extension | {"method": params.method}})
            elapsed = time.perf_counter() - began
            answer.raise_for_status()
            if index >= WARM_UP:
                reply = answer.json()
                tokens += reply["usage"]["completion_tokens"]
                wall_s += elapsed
                decode_s += reply["simsd"]["decode_s"]
    return tokens / wall_s, tokens / decode_s


def machine(threads: int) -> dict[str, Any]:
    """Where and with what the figures were taken."""
    import torch
    import transformers

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    names = (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor()),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": commit.stdout.strip() or None,
        "date": time.strftime("%Y-%m-%d"),
    }


def _cpuinfo() -> list[str]:
    try:
        with open("/proc/cpuinfo") as file:
            return file.read().splitlines()
    except OSError:
        return []
