"""The document of `simsd bench speed`."""

from collections.abc import Callable, Iterator
from typing import Any

from simsd_bench.report.markdown import Column, Row, column, head, interval, number, table

Report = dict[str, Any]
Sections = dict[str, list[Row]]
Section = Callable[[list[Row], Report], list[str]]

AIM_COLUMNS: tuple[Column, ...] = (
    column("asked", "asked"),
    ("at least", lambda row: number(row.get("at_least"))),
    ("at most", lambda row: number(row.get("at_most"))),
    interval("measured", "ratio", 2),
    ("met", lambda row: "yes" if _met(row) else "no"),
)
BASELINE_COLUMNS: tuple[Column, ...] = (
    column("B", "block_size"),
    column("our runner", "runner"),
    column("prompts", "prompts"),
    interval("plain loop: tokens/s", "plain_tokens_per_s", 1),
    interval("vanilla-static: tokens/s", "tokens_per_s", 1),
    interval("ratio", "ratio", 2),
)
FLOOR_COLUMNS: tuple[Column, ...] = (
    column("batch", "batch"),
    column("runner", "runner"),
    column("method", "method"),
    column("rows a target forward", "rows_per_target_forward", 1),
    column("ms a round", "round_ms", 2),
    column("products alone, ms", "floor_ms", 2),
    interval("times the floor", "ratio", 2),
    column("first pass, s", "warm_up_s", 1),
)
CONCURRENCY_COLUMNS: tuple[Column, ...] = (
    column("at a time", "concurrency"),
    column("method", "method"),
    interval("tokens/s", "tokens_per_s", 1),
    interval("over one", "over_one", 2),
    interval("over vanilla", "over_vanilla", 2),
    column("acceptance", "acceptance", 3),
)
CONTEXT_COLUMNS: tuple[Column, ...] = (
    column("context, tokens", "context"),
    column("method", "method"),
    interval("target: ms a forward", "target_ms", 2),
    interval("draft: ms a forward", "draft_ms", 2),
    interval("ms a round", "round_ms", 2),
    interval("ms a block", "block_ms", 1),
)
ENGINE_COLUMNS: tuple[Column, ...] = (
    column("at a time", "batch"),
    column("method", "method"),
    column("", "line"),
    interval("tokens/s", "tokens_per_s", 1),
    interval("of it in process", "ratio", 2),
)
REGRET_COLUMNS: tuple[Column, ...] = (
    column("B", "block_size"),
    column("setting", "method"),
    column("tokens/s", "tokens_per_s", 1),
    interval("over adaptive", "ratio", 2),
    column("acceptance", "acceptance", 3),
    ("", lambda row: "best fixed" if row.get("best") else "-"),
)


def document(report: Report) -> str:
    settings = report["settings"]
    lines = [
        *head("Speed of the code", report),
        "",
        f"B = {settings['block_size']}, unless a table says otherwise; answers of {settings['tokens']} tokens, EOS off "
        f"(regret: EOS on), greedy; {settings['repeats']} repeats, after a pass that warms up; all lines of a table "
        "take turns. In brackets: quartiles; a ratio is of medians, and its quartiles are of the ratios repeat by "
        "repeat (prompt by prompt in baseline and regret). Where sequences decode together, time runs from the first "
        "round in which none of them is prefilled until one is done. Behind its natural end an answer is easy to "
        "draft, so acceptance is higher here than in `decode.md`.",
    ]
    if aims := [aim for aim in asked(report["sections"]) if aim]:
        lines += ["", "## What was asked", "", *table(AIM_COLUMNS, aims)]
    for name, rows in report["sections"].items():
        lines += ["", *SECTIONS[name](rows, report)]
    return "\n".join([*lines, ""])


def _met(row: Row) -> bool:
    return row["ratio"] >= row.get("at_least", 0) and row["ratio"] <= row.get("at_most", row["ratio"])


def _of(row: Row, name: str) -> Row:
    """Return one ratio of a row and its quartiles under the name `ratio`."""
    return {"ratio": row[name], "ratio_low": row[f"{name}_low"], "ratio_high": row[f"{name}_high"]}


SIXTEEN_OVER_ONE = {"vanilla-static": 4.5, "simsd": 2.8}
OVER_FLOOR = {1: 1.7, 16: 1.4}
OF_IN_PROCESS = {1: 0.85, 16: 0.9}


def asked(sections: Sections) -> Iterator[Row]:
    """Yield a row for each target that the design sets, with what was measured."""
    for row in sections.get("baseline", []):
        what = f"vanilla over a plain transformers loop, B = {row['block_size']}, {row['runner']}"
        yield {"asked": what, "at_least": 2.0} | row
    for row in sections.get("floor", []):
        if row["runner"] == "compile" and row["batch"] in OVER_FLOOR:
            what = f"{row['method']} over its floor, batch {row['batch']}, compiled"
            yield {"asked": what, "at_most": OVER_FLOOR[row["batch"]]} | row
    for row in sections.get("engines", []):
        if row["line"] == "engines" and row["batch"] in OF_IN_PROCESS:
            what = f"{row['method']} with engines on Ray, of its speed in process, {row['batch']} at a time"
            yield {"asked": what, "at_least": OF_IN_PROCESS[row["batch"]]} | row
    together = sections.get("concurrency", [])
    for row in together:
        if row["concurrency"] == 16 and row["method"] in SIXTEEN_OVER_ONE:
            what = f"{row['method']}, 16 sequences over one"
            yield {"asked": what, "at_least": SIXTEEN_OVER_ONE[row["method"]]} | _of(row, "over_one")
    if adaptive := [row for row in together if row["method"] == "simsd-adaptive"]:
        least = min(adaptive, key=lambda row: float(row["over_vanilla"]))
        what = f"adaptive simsd over vanilla at any concurrency; least at {least['concurrency']}"
        yield {"asked": what, "at_least": 1.0} | _of(least, "over_vanilla")


def _baseline(rows: list[Row], _: Report) -> list[str]:
    return [
        "## Our vanilla against plain transformers",
        "",
        "`Qwen3ForCausalLM` with the same weights, a `DynamicCache`, a block-causal 4-D mask: B forwards a block, and "
        "one more that commits it. Both wrote the same tokens to every prompt.",
        "",
        *table(BASELINE_COLUMNS, rows),
    ]


def _floor(rows: list[Row], report: Report) -> list[str]:
    return [
        "## Decode time over its arithmetic floor",
        "",
        "*products alone*: for each forward of the same rounds, target's and draft's, every linear layer on its rows "
        "and the head on the rows that want logits, inputs ready, nothing else, timed right after the rounds: as the "
        "runner has them, with `compile` from weights packed for oneDNN, which is faster than what the others have. "
        f"*batch* 1: {report['settings']['alone']} prompts one after the other. *first pass*: the same prompts once "
        "before.",
        "",
        *table(FLOOR_COLUMNS, rows),
    ]


def _concurrency(rows: list[Row], _: Report) -> list[str]:
    return [
        "## Sequences at a time",
        "",
        "In process. *over one*: tokens/s over those of one sequence; *over vanilla*: over vanilla-static at the same "
        "number.",
        "",
        *table(CONCURRENCY_COLUMNS, rows),
    ]


def _context(rows: list[Row], _: Report) -> list[str]:
    return [
        "## Cost against context",
        "",
        "One sequence, whose answer ends where the context is as long as the line says. The prompt is plain tokens at "
        "random, so acceptance, and with it simsd's *ms a block*, mean nothing but the length. *ms a forward*: the "
        "whole call of the model, for the target with its accept rule.",
        "",
        *table(CONTEXT_COLUMNS, rows),
    ]


def _regret(rows: list[Row], _: Report) -> list[str]:
    return ["## Adaptive drafting against fixed", "", *regrets(rows), "", *table(REGRET_COLUMNS, marked(rows))]


def _engines(rows: list[Row], report: Report) -> list[str]:
    return [
        "## Engines on Ray",
        "",
        "A loop over a draft's and a target's engine, each an actor in a process of its own, as a coordinator has it; "
        f"no HTTP. Answers of {report['settings']['engine_tokens']} tokens. *a round at a time*: without asynchronous "
        "scheduling, so that messages travel between forwards and not beside them. On Ray the draft also works beside "
        "the target, where one process does one after the other.",
        "",
        *table(ENGINE_COLUMNS, rows),
    ]


def marked(rows: list[Row]) -> list[Row]:
    """Return the rows with `best`, which marks the best fixed setting of each block size."""
    best = {id(row) for row in _best(rows)}
    return [row | {"best": id(row) in best} for row in rows]


def _best(rows: list[Row]) -> list[Row]:
    sizes = dict.fromkeys(row["block_size"] for row in rows)
    fixed = ([row for row in rows if row["fixed"] and row["block_size"] == size] for size in sizes)
    return [max(each, key=lambda row: float(row["ratio"])) for each in fixed]


def regrets(rows: list[Row]) -> list[str]:
    """Return a line for each block size that says how far the best fixed setting is ahead."""
    return [
        f"* B = {row['block_size']}: the best fixed setting, {row['method']}, found on these very prompts, decodes at "
        f"{row['ratio']:.2f} ({row['ratio_low']:.2f}-{row['ratio_high']:.2f}) times the speed of adaptive drafting."
        for row in _best(rows)
    ]


SECTIONS: dict[str, Section] = {
    "baseline": _baseline,
    "floor": _floor,
    "concurrency": _concurrency,
    "context": _context,
    "regret": _regret,
    "engines": _engines,
}
