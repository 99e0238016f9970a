"""Reports as plots, PNG and SVG. Lines differ by marker and style, so that they can be told apart without colour."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Series = Mapping[str, tuple[Sequence[float], Sequence[float | None]]]
"""Label of each line -> its x and y values."""
MARKERS = "osD^vPX*<>"
STYLES = ("-", "--", ":", "-.")
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "simsd",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.4,
}
DPI = 90


def draw(report: dict[str, Any], directory: Path) -> list[str]:
    """Write NAME.png and NAME.svg for each plot of the report, and return the names.

    Raises `ImportError` without matplotlib.
    """
    import matplotlib

    names = []
    with matplotlib.rc_context(SETTINGS):
        for name, figure in FIGURES[report["kind"]](report).items():
            _sign(figure, report)
            for kind in ("png", "svg"):
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                figure.savefig(directory / f"{name}.{kind}", dpi=DPI, metadata=metadata)
            names.append(name)
    return names


def _figure(panels: int, width: float = 4.6, height: float = 3.6) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * panels, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)
    return figure, list(axes[0])


def _sign(figure: "Figure", report: dict[str, Any]) -> None:
    """Write machine, commit and date below a picture, for when it is shown without its document."""
    m = report["machine"]
    parts = [m["gpu"] or m["cpu"], f"commit {m['commit']}", m["date"]]
    if report.get("synthetic"):
        parts.insert(0, "no trained weights or synthetic acceptance: systems only")
    figure.supxlabel(" · ".join(parts), fontsize=7)


def _lines(axes: "Axes", series: Series) -> None:
    for index, (label, (x, y)) in enumerate(series.items()):
        known = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
        axes.plot(
            [a for a, _ in known],
            [b for _, b in known],
            label=label,
            marker=MARKERS[index % len(MARKERS)],
            linestyle=STYLES[index % len(STYLES)],
        )
    axes.legend(fontsize=7)


def _side_by_side(x_label: str, by_doubling: bool, panels: Mapping[str, Series]) -> "Figure":
    """Return a figure with a panel of lines for each label of a y axis, over the same x."""
    figure, all_axes = _figure(len(panels))
    for axes, (y_label, series) in zip(all_axes, panels.items(), strict=True):
        _lines(axes, series)
        axes.set_ylabel(y_label)
        axes.set_xlabel(x_label)
        if by_doubling:
            _by_doubling(axes)
    return figure


def _by_doubling(axes: "Axes") -> None:
    """Make the x axis logarithmic, with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")


def _series(rows: Sequence[Row], by: str, x: str, y: str, prefix: str = "") -> dict[str, tuple[list[float], list[Any]]]:
    """Return label -> (x values, y values), with a line for each value of `by`."""
    return {
        f"{prefix}{value}": ([r[x] for r in rows if r[by] == value], [r.get(y) for r in rows if r[by] == value])
        for value in dict.fromkeys(r[by] for r in rows)
    }


def decode(report: dict[str, Any]) -> "dict[str, Figure]":
    """Plot ratios with their quartiles, a panel for each block size, at the smallest batch."""
    batch = min(row["batch"] for row in report["rows"])
    rows = [row for row in report["rows"] if row["batch"] == batch]
    sizes = list(dict.fromkeys(row["block_size"] for row in rows))
    lines = len({row["method"] for row in rows})
    figure, panels = _figure(len(sizes), height=1.0 + 0.27 * lines)
    for axes, size in zip(panels, sizes, strict=True):
        shown = [row for row in rows if row["block_size"] == size][::-1]
        ratios = [row["ratio"] for row in shown]
        below = [max(0.0, row["ratio"] - row["ratio_low"]) for row in shown]
        above = [max(0.0, row["ratio_high"] - row["ratio"]) for row in shown]
        names = [row["method"] for row in shown]
        axes.barh(names, ratios, xerr=[below, above], color="0.75", edgecolor="black", capsize=2)
        axes.axvline(1, color="black", linestyle=":")
        axes.set_title(f"B = {size}, batch {batch}")
        axes.set_xlabel(f"tokens/s, times {rows[0]['method']}")
    return {"decode": figure}


def ablate(report: dict[str, Any]) -> "dict[str, Figure]":
    """Plot ratio and tokens a verify call against gamma, draft steps and row budget."""
    plots = {"gamma": ("gamma", "gamma, tokens"), "draft-steps": ("draft_steps", "draft forwards a round")}
    plots |= {"budget": ("row_budget", "row budget, rows")}
    figures = {}
    for name, (x, label) in plots.items():
        rows = [row for row in report["sections"].get(name, []) if x in row]
        if not rows:
            continue
        labelled = [row | {"label": f"{row['line']}, B = {row['block_size']}"} for row in rows]
        panels = {
            "tokens/s, times vanilla-static": _series(labelled, "label", x, "ratio"),
            "tokens a verify call": _series(labelled, "label", x, "tokens_per_verify"),
        }
        figures[f"ablate-{name}"] = _side_by_side(label, name != "gamma", panels)
    return figures


def approx(report: dict[str, Any]) -> "dict[str, Figure]":
    """Plot top-1 agreement and total variation by step."""
    rows = [
        row | {"step": row["part"] + 1, "line": f"{row['drafter']}, B = {row['block_size']}"}
        for row in report["rows"]
        if isinstance(row["part"], int)
    ]
    panels = {
        "top-1 agreement with sequential": _series(rows, "line", "step", "top1"),
        "total variation": _series(rows, "line", "step", "total_variation"),
    }
    return {"approx": _side_by_side("step in the block", False, panels)}


def serve(report: dict[str, Any]) -> "dict[str, Figure]":
    """Plot throughput and latency against concurrency."""
    rows = [row for row in report["rows"] if row["interface"] == "HTTP"]
    series = _series(rows, "method", "concurrency", "tokens_per_s")
    if any(row.get("in_process_tokens_per_s") for row in rows):
        inside = _series(rows, "method", "concurrency", "in_process_tokens_per_s")
        series |= {f"{name}, in process": values for name, values in inside.items()}
    latencies = _series(rows, "method", "concurrency", "latency_p50_ms")
    panels = {"tokens/s, all clients": series, "latency p50, ms": latencies}
    return {"serve": _side_by_side("requests at a time", True, panels)}


def speed(report: dict[str, Any]) -> "dict[str, Figure]":
    """Plot speed against concurrency and context as lines, and decode time over its floor as bars."""
    sections, figures = report["sections"], {}
    if rows := sections.get("floor"):
        figures["speed-floor"] = _floor(rows)
    if rows := sections.get("concurrency"):
        panels = {
            "tokens/s, all sequences": _series(rows, "method", "concurrency", "tokens_per_s"),
            "tokens/s, times vanilla-static": _series(rows, "method", "concurrency", "over_vanilla"),
        }
        figures["speed-concurrency"] = _side_by_side("sequences at a time", True, panels)
    if rows := sections.get("context"):
        target = _series(rows, "method", "context", "target_ms", "target, ")
        draft = _series([r for r in rows if "draft_ms" in r], "method", "context", "draft_ms", "draft, ")
        panels = {"ms a forward": target | draft, "ms a round": _series(rows, "method", "context", "round_ms")}
        figures["speed-context"] = _side_by_side("context, tokens", True, panels)
        for axes in figures["speed-context"].axes:
            axes.set_ylim(bottom=0)
    return figures


def _floor(rows: list[Row]) -> "Figure":
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    figure, panels = _figure(len(batches), height=1.2 + 0.27 * len(rows) / len(batches))
    for axes, batch in zip(panels, batches, strict=True):
        shown = [row for row in rows if row["batch"] == batch][::-1]
        names = [f"{row['method']}, {row['runner']}" for row in shown]
        axes.barh(names, [row["ratio"] for row in shown], color="0.75", edgecolor="black")
        axes.axvline(1, color="black", linestyle=":")
        axes.set_title(f"batch {batch}")
        axes.set_xlabel("decode time, times its matrix products alone")
    return figure


FIGURES = {
    "accuracy": lambda report: {},
    "decode": decode,
    "ablate": ablate,
    "approx": approx,
    "serve": serve,
    "speed": speed,
}
"""Kind of report -> its plots by name."""
