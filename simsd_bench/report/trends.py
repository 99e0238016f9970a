"""Compares our figures with the paper's trends: a line for each finding of the paper (section 4)."""

from collections.abc import Iterator
from typing import Any

from simsd_bench.report.markdown import Row
from simsd_bench.report.published import GRAPH, PUBLISHED_GAMMA, PUBLISHED_ROPE, PUBLISHED_SPEED, PUBLISHED_TOP1

FEW, MANY = PUBLISHED_GAMMA[0], PUBLISHED_GAMMA[-1]
COLLAPSED = 0.5
"""Accuracy counts as collapsed if less than this share of it is left."""
SYSTEMS = {"vanilla": "vanilla-static", "S2D2": "s2d2-span", "SimSD": "simsd-steps"}
"""The paper's systems (its vanilla is the one with CUDA graphs) -> our method of the same kind."""


def trends(decode: dict[str, Any], ablate: dict[str, Any], approx: dict[str, Any]) -> Iterator[Row]:
    """Yield a row for each trend that was measured: trend, paper, ours, same, and a remark where ours differs."""
    rows = {(row["block_size"], row["method"]): row for row in decode["rows"] if row["batch"] == 1}
    yield from _rope([row for row in ablate["sections"].get("rope", []) if row["block_size"] == 4 and "kl" in row])
    yield from _gamma([row for row in ablate["sections"].get("gamma", []) if row["block_size"] == 8])
    yield from _one_pass([row for row in approx["rows"] if row["part"] == "all"])
    for block_size in PUBLISHED_SPEED:
        ours = {name: rows[block_size, method] for name, method in SYSTEMS.items() if (block_size, method) in rows}
        if len(ours) == len(SYSTEMS):
            yield from _systems(block_size, ours, rows.get((block_size, "vanilla-dynamic")))


def _change(before: float, after: float, digits: int = 3) -> str:
    return f"{before:.{digits}f} to {after:.{digits}f}"


def _line(trend: str, paper: str, ours: str, same: bool, remark: str = "") -> Row:
    return {"trend": trend, "paper": paper, "ours": ours, "same": "yes" if same else "**no**", "remark": remark or None}


def _rope(rows: list[Row]) -> Iterator[Row]:
    if len(rows) != 2:
        return
    (right, wrong), (aligned, onward) = PUBLISHED_ROPE, rows
    if aligned["accuracy"] is not None:
        paper, ours = (_change(a["accuracy"], b["accuracy"]) for a, b in ((right, wrong), (aligned, onward)))
        collapsed = onward["accuracy"] < COLLAPSED * aligned["accuracy"]
        yield _line("slots numbered onward: accuracy collapses", paper, ours, collapsed)
    if aligned["acceptance"] is not None and onward["acceptance"] is not None:
        paper, ours = (_change(a["acceptance"], b["acceptance"]) for a, b in ((right, wrong), (aligned, onward)))
        fell = onward["acceptance"] < aligned["acceptance"]
        yield _line("slots numbered onward: acceptance falls", paper, ours, fell)
    far = onward["kl"] > 1 > aligned["kl"]
    yield _line("slots numbered onward: KL, nats", f"{wrong['kl']}", _change(aligned["kl"], onward["kl"]), far)


def _gamma(rows: list[Row]) -> Iterator[Row]:
    found = {row["gamma"]: row for row in rows if "gamma" in row}
    if not {FEW["gamma"], MANY["gamma"]} <= found.keys():
        return
    few, many = found[FEW["gamma"]], found[MANY["gamma"]]
    what = f"gamma {FEW['gamma']} to {MANY['gamma']}, B = 8"
    if few["acceptance"] is not None and many["acceptance"] is not None:
        paper, ours = (_change(a["acceptance"], b["acceptance"]) for a, b in ((FEW, MANY), (few, many)))
        same, remark = many["acceptance"] > few["acceptance"], ""
        if not same and 1 in found:
            remark = (
                f"{found[1]['acceptance']:.3f} where one token is drafted: a token is judged in the context that it "
                "was drafted in, however many others were; see docs/benchmarks.md"
            )
        yield _line(f"{what}: acceptance rises", paper, ours, same, remark)
    paper = f"{_change(FEW['block'], MANY['block'], 2)} a block"
    ours = f"{_change(few['tokens_per_verify'], many['tokens_per_verify'], 2)} a verify call"
    yield _line(f"{what}: more tokens stand", paper, ours, many["tokens_per_verify"] > few["tokens_per_verify"])


def _one_pass(rows: list[Row]) -> Iterator[Row]:
    for drafter, least in PUBLISHED_TOP1.items():
        found = {row["block_size"]: row for row in rows if row["drafter"] == drafter}
        for size, row in found.items():
            what = f"one pass, {drafter}, B = {size}: top-1 agreement"
            yield _line(what, f"at least {least}", f"{row['top1']:.4f}", row["top1"] >= least)
        if {4, 8} <= found.keys():
            near, far = found[4]["kl"], found[8]["kl"]
            what = f"one pass, {drafter}: the approximation is worse at B = 8 than at 4 (KL, nats)"
            yield _line(what, "no figure by B", _change(near, far, 4), far > near)


def _systems(block_size: int, ours: dict[str, Row], dynamic: Row | None) -> Iterator[Row]:
    """Yield rows on the order of the systems by speed, and on whether SimSD keeps vanilla's accuracy."""
    published = dict(zip(("vanilla", "S2D2", "SimSD"), PUBLISHED_SPEED[block_size][GRAPH:], strict=True))
    speed = {name: mean for name, (_, _, mean, _) in published.items()}
    gain = ours["SimSD"]["ratio"]
    paper = f"{speed['SimSD'] / speed['vanilla']:.2f} times"
    yield _line(f"B = {block_size}: SimSD faster than vanilla", paper, f"{gain:.2f} times", gain > 1)
    theirs_in_order = sorted(speed, key=lambda name: speed[name])
    ours_in_order = sorted(ours, key=lambda name: float(ours[name]["ratio"]))
    same, remark = theirs_in_order == ours_in_order, ""
    if not same and dynamic is not None:
        remark = (
            f"S2D2 decodes with dynamic remasking, several tokens a step: {ours['S2D2']['ratio']:.2f} times "
            f"vanilla-static; vanilla with it and no verification at all: {dynamic['ratio']:.2f} times"
        )
    orders = " < ".join(theirs_in_order), " < ".join(ours_in_order)
    yield _line(f"B = {block_size}: vanilla, S2D2, SimSD by speed", *orders, same, remark)
    vanilla, simsd = ours["vanilla"], ours["SimSD"]
    if vanilla["accuracy"] is not None:
        paper = f"{published['vanilla'][3]} to {published['SimSD'][3]}"
        kept = simsd["accuracy_high"] >= vanilla["accuracy_low"]
        found = _change(vanilla["accuracy"], simsd["accuracy"])
        yield _line(f"B = {block_size}: SimSD keeps vanilla's accuracy (intervals meet)", paper, found, kept)
