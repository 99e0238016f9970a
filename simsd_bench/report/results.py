"""Writes the files of a measurement: numbers, a document and plots."""

import json
from pathlib import Path
from typing import Any

from simsd_bench.measure.pair import PairSpec
from simsd_bench.report import markdown, speed_tables
from simsd_bench.report.facts import machine

PAPER_NEEDS = ("decode", "ablate", "approx")


def finish(report: dict[str, Any], spec: PairSpec, command: str, prompts: str) -> dict[str, Any]:
    """Return the report with the facts that every output shows."""
    return report | {
        "command": command,
        "machine": machine(spec.threads, spec.device),
        "pair": spec.describe(),
        "prompts": prompts,
        "synthetic": spec.synthetic,
    }


def document(report: dict[str, Any]) -> str:
    documents = markdown.DOCUMENTS | {"speed": speed_tables.document}
    return documents[report["kind"]](report)


def save(report: dict[str, Any], directory: Path) -> list[Path]:
    """Write KIND.json, KIND.md and plots to `directory`, and return the paths.

    The comparison with the paper's tables is written too once its three reports are there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    kind = report["kind"]
    numbers, text = directory / f"{kind}.json", directory / f"{kind}.md"
    numbers.write_text(json.dumps(rounded(report), indent=1) + "\n", encoding="utf-8")
    written = [numbers, text]
    try:
        from simsd_bench.report.plots import draw

        names = draw(report, directory)
    except ImportError:
        names = []
    pictures = [f"![{name}]({name}.svg)" for name in names]
    missing = [] if names else ["Plots need matplotlib: `pip install 'simsd-serve[bench]'`."]
    text.write_text("\n".join([document(report), *pictures, *missing, ""]), encoding="utf-8")
    written += [directory / f"{name}.{suffix}" for name in names for suffix in ("svg", "png")]
    if kind in PAPER_NEEDS and all((directory / f"{name}.json").is_file() for name in PAPER_NEEDS):
        written.append(_paper(directory))
    return written


def rounded(value: Any) -> Any:
    """Return the value with five significant digits, since further ones are noise that changes with every run."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _paper(directory: Path) -> Path:
    from simsd_bench.report.paper import document as paper_document

    reports = [json.loads((directory / f"{name}.json").read_text(encoding="utf-8")) for name in PAPER_NEEDS]
    path = directory / "paper.md"
    path.write_text(paper_document(*reports), encoding="utf-8")
    return path
