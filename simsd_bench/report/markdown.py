"""Reports as Markdown: what was measured, where and how, followed by tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def column(title: str, name: str, digits: int | None = None) -> Column:
    """Return a plain column. `digits`: digits after the decimal point, None for values that are not fractions."""
    if digits is None:
        return (
            title,
            lambda row: "-" if row.get(name) is None else f"{row[name]:g}" if _is_number(row[name]) else row[name],
        )
    return title, lambda row: number(row.get(name), digits)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def interval(title: str, name: str, digits: int) -> Column:
    """Return a column of values with NAME_low and NAME_high in brackets."""

    def cell(row: Row) -> str:
        if row.get(name) is None:
            return "-"
        return f"{row[name]:.{digits}f} ({row[name + '_low']:.{digits}f}-{row[name + '_high']:.{digits}f})"

    return title, cell


def table(columns: Sequence[Column], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a table; columns without a value in any row are left out."""
    rows = list(rows)
    kept = [(title, cell) for title, cell in columns if any(cell(row) != "-" for row in rows)]
    lines = [f"| {' | '.join(title for title, _ in kept)} |", "|" + "---|" * len(kept)]
    return lines + [f"| {' | '.join(cell(row) for _, cell in kept)} |" for row in rows]


DECODE_COLUMNS = (
    column("B", "block_size"),
    column("batch", "batch"),
    column("method", "method"),
    column("tokens/s", "tokens_per_s", 1),
    interval("ratio", "ratio", 2),
    column("acceptance", "acceptance", 3),
    column("tokens a verify call", "tokens_per_verify", 2),
    column("target forwards a token", "target_forwards_per_token", 2),
    column("draft forwards a token", "draft_forwards_per_token", 2),
    column("rows a target forward", "rows_per_target_forward", 1),
    column("ms a block", "block_ms", 1),
    interval("accuracy", "accuracy", 3),
    column("KL to sequential, nats", "kl", 3),
)
LEGEND = (
    "*tokens/s*: answer tokens over decode time, prefill excluded, warm-up prompts dropped. Each prompt goes to "
    "every line of a table before the next one comes; *ratio*: the median tokens/s over the first line's median, in "
    "brackets the quartiles of the ratio on the same prompt. *acceptance*: drafted tokens that stood, of those that "
    "were judged. *forwards a token* count prefill too; *rows a target forward* count no prompt. *ms a block*: decode "
    "time of B answer tokens. *accuracy* has its 95 % Wilson interval. On a shared machine read the ratios, which are "
    "of times taken seconds apart."
)


def head(title: str, report: dict[str, Any]) -> list[str]:
    """Return the lines with which every document begins."""
    m = report["machine"]
    where = f"{m['gpu']}, {m['cores']} cores of {m['cpu']}" if m["gpu"] else f"{m['cores']} cores of {m['cpu']}, no GPU"
    lines = [
        f"# {title}",
        "",
        f"`{report['command']}`, {m['date']}, commit {m['commit']}. {where}, {m['threads']} torch thread(s) a model; "
        f"Python {m['python']}, torch {m['torch']}, transformers {m['transformers']}, simsd {m['simsd']}. "
        f"Pair: {report['pair']}. Prompts: {report['prompts']}.",
    ]
    if report.get("protocol"):
        lines += ["", f"Protocol {report['protocol']}."]
    if report.get("synthetic"):
        lines += [
            "",
            "**No trained weights, or a synthetic draft: these figures are of systems, not of answers.**",
        ]
    return lines


def decode(report: dict[str, Any]) -> str:
    lines = [*head("Decoding: methods side by side", report), "", LEGEND, "", *table(DECODE_COLUMNS, report["rows"])]
    sources = dict.fromkeys(row["source"] for row in report["by_source"])
    if len(sources) > 1:
        lines += ["", "## By source", "", *_by_source(report["by_source"], list(sources))]
    return "\n".join([*lines, ""])


def _by_source(rows: list[Row], sources: list[str]) -> list[str]:
    """Return a table with a line for each block size and method: tokens/s, ratio and accuracy of each source."""
    merged: dict[tuple[int, str], Row] = {}
    for row in rows:
        line = merged.setdefault((row["block_size"], row["method"]), {k: row[k] for k in ("block_size", "method")})
        line |= {f"{row['source']} {name}": row[name] for name in ("tokens_per_s", "ratio", "acceptance", "accuracy")}
    columns = [column("B", "block_size"), column("method", "method")]
    for source in sources:
        columns += [column(f"{source}: tokens/s", f"{source} tokens_per_s", 1)]
        columns += [column(name, f"{source} {name}", digits) for name, digits in (("ratio", 2), ("accuracy", 3))]
    return table(columns, merged.values())


ABLATION_TITLES = {
    "rope": "Position ids: mask slots share their data row's position, or are numbered onward",
    "gamma": "gamma: tokens drafted a round, one draft forward each",
    "layout": "Layout of a simsd verification: one pass over paired rows, or a copy of the block for each step",
    "order": "Whose order: in which order positions are revealed, and who decides",
    "draft-steps": "draft_steps: draft forwards for the same gamma = B",
    "budget": "row_budget: rows of one exact verification at most",
}


def ablate(report: dict[str, Any]) -> str:
    lines = [*head("Ablations", report), "", LEGEND]
    for name, rows in report["sections"].items():
        lines += ["", f"## {ABLATION_TITLES[name]}", "", *table(DECODE_COLUMNS, rows)]
    return "\n".join([*lines, ""])


APPROX_TEXT = (
    "At every step of a drafted block the target's distribution on paired rows (one pass) is compared with that on a "
    "copy of the block which holds the steps before (sequential denoising), in one forward, no cache. *top-1*: the "
    "best tokens are the same; *KL*: from the sequential to the paired distribution; *total variation*: half the sum "
    "of absolute differences. *draft wrong*: the steps that a verification gets to where the target's best token is "
    "another than the draft's; *false accepts*: those where one pass would let the drafted token stand (greedy). "
    "Template tokens are trivial and flatter the means; the steps where the draft is wrong are those that count."
)


def approx(report: dict[str, Any]) -> str:
    columns = (
        column("B", "block_size"),
        column("drafter", "drafter"),
        ("steps", lambda row: f"step {row['part'] + 1}" if isinstance(row["part"], int) else row["part"]),
        column("n", "steps"),
        column("top-1", "top1", 4),
        column("KL, nats", "kl", 4),
        column("total variation", "total_variation", 4),
        column("false accepts", "false_accepts", 3),
    )
    title = "One pass over paired rows, against sequential denoising"
    return "\n".join([*head(title, report), "", APPROX_TEXT, "", *table(columns, report["rows"]), ""])


def serve(report: dict[str, Any]) -> str:
    columns = (
        column("at a time", "concurrency"),
        column("method", "method"),
        column("by", "interface"),
        column("requests", "requests"),
        column("tokens/s", "tokens_per_s", 1),
        column("in process: tokens/s", "in_process_tokens_per_s", 1),
        ("of it served", lambda row: number(_share(row))),
        column("requests/s", "requests_per_s", 2),
        column("first text p50, ms", "first_p50_ms", 0),
        column("p95", "first_p95_ms", 0),
        column("latency p50, ms", "latency_p50_ms", 0),
        column("p95", "latency_p95_ms", 0),
    )
    text = (
        f"B = {report['block_size']}. So many clients, each sends its next request when its last answer is there; chat "
        "completions, streamed unless *whole*. *tokens/s* are of all clients together over the wall time, prefill, "
        "queue and network included; *in process* the same requests without Ray and network, prefill included, after "
        "the server was stopped. Methods take turns at each concurrency. Latencies are of requests as a client sees "
        "them; the server shares the cores with the clients. No prefix cache"
        + (", unless the server has one." if report["url"] else ".")
    )
    lines = [*head("Serving: a sweep over concurrency", report), "", text, "", *table(columns, report["rows"])]
    if rows := [row for row in report["rows"] if "cpu_ms" in row]:
        lines += ["", "## Where the time goes", "", CPU_TEXT, "", *_cpu_table(rows)]
    return "\n".join([*lines, ""])


CPU_TEXT = (
    "CPU milliseconds of each process for one request, all cores together. What the engines take beyond *in process* "
    "is Ray's part of their calls, and caches that others have emptied. A machine with fewer cores than busy processes "
    "answers a request in no less than the sum over its cores."
)


def _cpu_table(rows: list[Row]) -> list[str]:
    columns = [column("at a time", "concurrency"), column("method", "method"), column("by", "interface")]
    columns += [column(part, part, 1) for part in rows[0]["cpu_ms"]]
    columns += [column("sum", "sum", 1), column("in process", "in_process_cpu_ms", 1)]
    return table(columns, [row | row["cpu_ms"] | {"sum": sum(row["cpu_ms"].values())} for row in rows])


def _share(row: Row) -> float | None:
    inside = row.get("in_process_tokens_per_s")
    return row["tokens_per_s"] / inside if inside else None


ACCURACY_TEXT = (
    "Accuracy with its 95 % Wilson interval; each part of a list counts as an answer, and *all* is the mean of the "
    "families. *heldout*: wordings of training, values that training never saw. *phrasing*: wordings, names and "
    "objects that training never saw. *tokens a target forward* count prompts' forwards too, in batches of 16; in the "
    "draft's line the draft is the model that answers."
)


def accuracy(report: dict[str, Any]) -> str:
    columns = [column("B", "block_size"), column("split", "split"), column("method", "method"), column("all", "all", 3)]
    columns += [interval(name, name, 3) for name in report["families"]]
    columns += [column("acceptance", "acceptance", 3)]
    columns += [column("tokens a target forward", "tokens_per_target_forward", 2)]
    lines = [*head("Accuracy on unseen questions", report), "", ACCURACY_TEXT]
    for split in dict.fromkeys(row["split"] for row in report["rows"]):
        lines += ["", *table(columns, [row for row in report["rows"] if row["split"] == split])]
    return "\n".join([*lines, ""])


DOCUMENTS = {"accuracy": accuracy, "decode": decode, "ablate": ablate, "approx": approx, "serve": serve}
"""Kind of report -> its document."""
