"""The paper's tables (arXiv 2606.02544) with ours beside them, from the reports of the other commands."""

from typing import Any

from simsd_bench.report.markdown import Column, Row, column, interval, number, table
from simsd_bench.report.published import (
    FAMILY_OF,
    GRAPH,
    PUBLISHED_GAMMA,
    PUBLISHED_ROPE,
    PUBLISHED_SPEED,
    PUBLISHED_TOP1,
)
from simsd_bench.report.trends import trends

OURS = {"vanilla + CUDA graph": "vanilla-static", "S2D2": "s2d2-span", "SimSD": "simsd-steps"}
OURS_BESIDE = {
    "vanilla-dynamic": "vanilla, dynamic .9",
    "simsd": "SimSD, one draft forward",
    "simsd-sequential": "SimSD, one draft forward, left to right",
    "exact": "exact",
}


def document(decode: dict[str, Any], ablate: dict[str, Any], approx: dict[str, Any]) -> str:
    """Return the text of docs/results/paper.md; every figure of ours is in the three reports."""
    m = decode["machine"]
    lines = [
        "# The paper's tables, and ours",
        "",
        "The paper's figures (arXiv 2606.02544) are of SDAR-1.7B drafting for SDAR-8B on GPUs, batch 1, over GSM8K, "
        f"TriviaQA, MBPP and MMLU. **Ours** are of another pair: {decode['pair']}, on "
        f"{m['gpu'] or m['cpu'] + ', no GPU'}, over {decode['prompts']}. So compare trends, not tokens/s. The paper's "
        "ratio is against vanilla without CUDA graphs; against its own graph baseline SimSD is 1.38 times as fast "
        "(B = 4) and 2.5 times (B = 8), and that is the ratio to compare ours with: all our lines share one runner. "
        "Where each figure of ours comes from: [decode.md](decode.md), [ablate.md](ablate.md), [approx.md](approx.md).",
        "",
        "## Trends",
        "",
        "What the paper finds, and whether ours goes the same way.",
        "",
        *table(TREND_COLUMNS, trends(decode, ablate, approx)),
        "",
        "## Throughput",
        "",
        *table(SPEED_COLUMNS, _speed(decode["rows"])),
        "",
        "MMLU answers are 6 to 8 tokens long, so speculation can hardly pay there; a mean hides that. By data set, the "
        "paper's beside our family of the kind, tokens/s and in brackets over the fair baseline:",
        "",
        *table(SOURCE_COLUMNS, _by_source(decode["by_source"])),
    ]
    if rope := ablate["sections"].get("rope"):
        lines += ["", "## Position ids (RoPE), B = 4", "", *table(ROPE_COLUMNS, _rope(rope))]
    if gamma := ablate["sections"].get("gamma"):
        lines += ["", "## gamma, B = 8", "", *table(GAMMA_COLUMNS, _gamma(gamma))]
    lines += ["", "## One pass against sequential denoising", "", *table(TOP1_COLUMNS, _top1(approx["rows"])), ""]
    return "\n".join(lines)


TREND_COLUMNS: tuple[Column, ...] = (
    column("trend", "trend"),
    column("paper", "paper"),
    column("ours", "ours"),
    column("same", "same"),
    column("why not", "remark"),
)
SPEED_COLUMNS: tuple[Column, ...] = (
    column("B", "block_size"),
    column("system", "system"),
    column("paper: tokens/s", "paper", 1),
    ("over vanilla + graph", lambda row: number(row.get("paper_ratio"))),
    column("paper: accuracy", "paper_accuracy", 3),
    column("ours: tokens/s", "tokens_per_s", 1),
    interval("over vanilla", "ratio", 2),
    interval("ours: accuracy", "accuracy", 3),
)
SOURCE_COLUMNS: tuple[Column, ...] = (
    column("B", "block_size"),
    column("system", "system"),
    *(column(title, title) for pair in FAMILY_OF.items() for title in pair),
)
ROPE_COLUMNS: tuple[Column, ...] = (
    column("", "line"),
    column("whose", "whose"),
    column("accuracy", "accuracy", 3),
    column("acceptance", "acceptance", 3),
    column("KL, nats", "kl", 3),
)
GAMMA_COLUMNS: tuple[Column, ...] = (
    column("gamma", "gamma"),
    column("whose", "whose"),
    column("accuracy", "accuracy", 3),
    column("tokens/s", "tokens_per_s", 1),
    column("acceptance", "acceptance", 3),
    column("tokens a verify call", "tokens_per_verify", 2),
    column("accepted a block (paper)", "block"),
    column("ms a block", "block_ms", 1),
)
TOP1_COLUMNS: tuple[Column, ...] = (
    column("B", "block_size"),
    column("drafter", "drafter"),
    ("paper: top-1, at least", lambda row: number(PUBLISHED_TOP1[row["drafter"]], 3)),
    column("ours: top-1", "top1", 4),
    column("KL, nats", "kl", 4),
    column("total variation", "total_variation", 4),
)


def _speed(rows: list[Row]) -> list[Row]:
    lines = []
    for block_size, published in PUBLISHED_SPEED.items():
        ours = {row["method"]: row for row in rows if row["block_size"] == block_size and row["batch"] == 1}
        for system, _, mean, accuracy in published:
            line: Row = {"paper": mean, "paper_ratio": mean / published[GRAPH][2], "paper_accuracy": accuracy}
            counterpart = ours.get(OURS.get(system, ""), {})
            lines.append(counterpart | line | {"system": system, "block_size": block_size})
        lines += [ours[method] | {"system": name} for method, name in OURS_BESIDE.items() if method in ours]
    return lines


def _by_source(rows: list[Row]) -> list[Row]:
    lines = []
    for block_size, published in PUBLISHED_SPEED.items():
        ours = {(row["method"], row["source"]): row for row in rows if row["block_size"] == block_size}
        for system, speeds, _, _ in published:
            line: Row = {"block_size": block_size, "system": system}
            for (data_set, family), speed, graph in zip(FAMILY_OF.items(), speeds, published[GRAPH][1], strict=True):
                line[data_set] = f"{speed:g} ({speed / graph:.2f})"
                found = ours.get((OURS.get(system, ""), family))
                line[family] = f"{found['tokens_per_s']:.1f} ({found['ratio']:.2f})" if found else None
            lines.append(line)
    return lines


def _rope(rows: list[Row]) -> list[Row]:
    ours = [row for row in rows if row["block_size"] == 4 and "kl" in row]
    named = [row | {"line": row["method"], "whose": "ours"} for row in ours]
    return [line | {"whose": "paper"} for line in PUBLISHED_ROPE] + named


def _gamma(rows: list[Row]) -> list[Row]:
    ours = [row | {"whose": "ours"} for row in rows if row["block_size"] == 8 and "gamma" in row]
    return sorted([line | {"whose": "paper"} for line in PUBLISHED_GAMMA] + ours, key=lambda row: row["gamma"])


def _top1(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["part"] == "all"]
