"""Ablations, one setting changed at a time: position ids, gamma, layout, order of reveals, draft steps, row budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simsd.eval.datasets import Item
from simsd.loop.loop import Loop
from simsd_bench.measure.approx import steps_of, summary
from simsd_bench.measure.decode import Setting, Tick, measure
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec

KL_ANSWERS = 8
"""Answers over which the rope ablation compares distributions."""


def settings(name: str, loop: Loop, block_size: int, protocol: Protocol) -> list[Setting]:
    """Return the settings of one ablation on `loop`. Ratios are against the first one, vanilla static."""
    named = methods(block_size, protocol)

    def changed(method: str, label: str, **changes: Any) -> Setting:
        return Setting(label, replace(named[method], **changes), loop, {"line": method} | changes)

    every = {
        "rope": lambda: [changed("simsd-steps", "aligned")],
        "gamma": lambda: [
            changed("simsd", f"gamma {gamma}", gamma=gamma, draft_steps=gamma) for gamma in range(1, block_size + 1)
        ],
        "layout": lambda: [
            changed("simsd-steps", f"simsd, {layout}", layout=layout) for layout in ("paired", "branches")
        ],
        "order": lambda: [
            Setting(label, named[method], loop, {"order": label})
            for method, label in (
                ("vanilla-sequential", "vanilla, left to right"),
                ("simsd-steps", "simsd, the draft's"),
                ("simsd-sequential", "simsd, left to right"),
                ("simsd-self", "simsd, the target's as its last forward guessed it"),
                ("exact", "exact, the target's"),
                ("exact-sequential", "exact, left to right"),
            )
        ],
        "draft-steps": lambda: [
            changed(method, f"{method}, {steps} steps", draft_steps=steps)
            for method in ("simsd", "exact")
            for steps in _powers(block_size)
        ],
        "budget": lambda: [
            changed(method, f"{method}, {rows} rows", row_budget=rows)
            for method in ("exact", "exact-self")
            for rows in (block_size * blocks for blocks in (1, 2, 4, 8, 16, 32))
        ],
    }
    return [Setting("vanilla-static", named["vanilla-static"], loop), *every[name]()]


ABLATIONS = ("rope", "gamma", "layout", "order", "draft-steps", "budget")


def _powers(block_size: int) -> list[int]:
    """Return 1, 2, 4, ... and the block size."""
    return sorted({1 << i for i in range(block_size.bit_length()) if 1 << i <= block_size} | {block_size})


def run(
    spec: PairSpec,
    asked: Sequence[Item],
    block_sizes: Sequence[int],
    names: Sequence[str],
    protocol: Protocol,
    note: Callable[[str], Tick],
) -> dict[str, Any]:
    """Return the rows of every ablation in `names`, for each block size."""
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for block_size in block_sizes:
        loop = spec.loop(block_size)
        for name in names:
            lines = settings(name, loop, block_size, protocol)
            unaligned = spec.loop(block_size, aligned=False) if name == "rope" else None
            if unaligned:
                lines.append(replace(lines[-1], name="slots numbered onward", loop=unaligned))
            tick = note(f"{name}, B={block_size}: {len(lines)} settings over {len(asked)} prompts")
            rows = [result.row(block_size) for result in measure(asked, lines, warm_up=protocol.warm_up, tick=tick)]
            if unaligned:
                for row, aligned in zip(rows[1:], (True, False), strict=True):
                    steps = [s for item in asked[:KL_ANSWERS] for s in steps_of(loop, item, False, aligned=aligned)]
                    row["kl"] = summary(steps)["kl"]
            sections[name] += rows
    return {"kind": "ablate", "protocol": protocol.describe(), "sections": sections}
