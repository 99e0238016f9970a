"""Measures accuracy: how many questions of each family each method answers rightly, on both splits of unseen questions.

A greedy text depends neither on the batch nor on time, so one run says it, and batches make it fast.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simsd.eval.datasets import Item, family_item, item_scores
from simsd.eval.families import FAMILIES, Split
from simsd.in_process import generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd.models.files import resolve_model
from simsd_bench.measure.decode import Tick
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec

BATCH = 16
METHODS = ("vanilla-static", "vanilla-dynamic", "vanilla-sequential", "simsd", "simsd-branches", "simsd-sequential")
SPLITS: tuple[Split, ...] = ("heldout", "phrasing")
DRAFT_ALONE = "draft, vanilla-static"


def run(
    spec: PairSpec,
    families: Sequence[str],
    n: int,
    block_sizes: Sequence[int],
    names: Sequence[str],
    protocol: Protocol,
    note: Callable[[str], Tick],
) -> dict[str, Any]:
    """Ask `n` questions of each family with each method, and the draft alone; return a row for each."""
    asked = {
        split: [
            family_item(question, index)
            for name in families
            for index, question in enumerate(FAMILIES[name].questions(split, n))
        ]
        for split in SPLITS
    }
    rows = []
    for block_size in block_sizes:
        named = methods(block_size, protocol)
        loop = spec.loop(block_size, BATCH)
        lines = [(name, loop, named[name]) for name in names]
        alone = replace(spec, target=str(resolve_model(spec.draft, "draft")), overlap=False)
        lines.append((DRAFT_ALONE, alone.loop(block_size, BATCH), named["vanilla-static"]))
        for split, items in asked.items():
            for name, used, params in lines:
                note(f"B={block_size}, {split}: {name} over {len(items)} questions")
                row = {"block_size": block_size, "split": split, "method": name}
                rows.append(row | _measured(used, items, params))
    return {"kind": "accuracy", "protocol": protocol.describe(), "families": list(families), "rows": rows}


def _measured(loop: Loop, items: Sequence[Item], params: DecodeParams) -> dict[str, Any]:
    """Return the columns of a line; the accuracy over all is the mean of the families'."""
    prompts = [loop.tokenizer.encode_messages(item.messages, tools=item.tools) for item in items]
    answers = generate_all(loop, [Request(item.key, ids, params) for item, ids in zip(items, prompts, strict=True)])
    scores = item_scores(items, [answer.text for answer in answers])
    total = {name: sum(getattr(a.stats, name) for a in answers) for name in ("accepted", "recovered")}
    forwards = sum(answer.stats.target_forwards for answer in answers)
    columns: dict[str, Any] = {}
    for name, found in scores.items():
        columns |= {name: found.accuracy, f"{name}_low": found.low, f"{name}_high": found.high}
    judged = sum(total.values())
    return columns | {
        "all": sum(found.accuracy for found in scores.values()) / len(scores),
        "acceptance": total["accepted"] / judged if judged else None,
        "tokens_per_target_forward": sum(answer.stats.completion_tokens for answer in answers) / forwards,
    }
