"""`simsd bench`: measures the figures in docs/results."""

import argparse
import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simsd.cli.options import add_command, add_worker_option, need_measurements
from simsd.config import SHIPPED
from simsd.errors import ConfigError
from simsd.eval.families import FAMILIES
from simsd.planning.shapes import SHAPES

if TYPE_CHECKING:
    from simsd.eval.datasets import Item
    from simsd_bench.measure.pair import PairSpec

EPILOG = """examples:
  simsd bench all --results docs/results          everything; with --quick, a few prompts only
  simsd bench decode --methods vanilla-static,simsd,exact --block-sizes 4,8 --n 10
  simsd bench decode --prompts gsm8k.jsonl --shots 4 --max-tokens 128 --json decode.json
  simsd bench ablate rope gamma --results out
  simsd bench approx
  simsd bench speed baseline floor --compile
  simsd bench serve --url http://127.0.0.1:8000 --concurrency 1,8,32
  simsd bench decode --random-weights sdar-1.7b,sdar-8b --synthetic-acceptance 0.9 --device cuda --batches 1,8,32
"""
WHAT = {
    "accuracy": "right answers of the methods on unseen questions of every family",
    "decode": "methods over prompts: speed, acceptance, forwards, accuracy",
    "ablate": "one thing changed at a time",
    "approx": "one-pass paired logits against sequential ones",
    "speed": "the code against plain transformers, its arithmetic floor, concurrency, context, adaptive drafting",
    "serve": "concurrency sweep over HTTP",
    "all": "all of them, into --results",
}
FULL = {"accuracy": 100, "decode": 10, "ablate": 8, "approx": 8, "speed": 16, "serve": 32}
"""Prompts of each family or file, unless --n says otherwise."""
QUICK = {"accuracy": 2, "decode": 5, "ablate": 2, "approx": 2, "speed": 4, "serve": 16}
"""Prompts altogether with --quick (for accuracy, of each family), unless --n says otherwise."""
DEFAULT_FAMILIES = {"accuracy": tuple(FAMILIES), "decode": ("lists", "math", "code", "trivia", "choice")}
"""The families that a command asks, unless --families says otherwise. The others ask lists, whose answers are long."""
QUICK_CONCURRENCY, CONCURRENCY = "1,8", "1,2,4,8,16,32"

Note = Callable[[str], Callable[[], object]]


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "bench",
        help="measure the methods",
        description="Measure speed, acceptance and accuracy of the methods on a pair.",
        epilog=EPILOG,
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT", title="what to measure")
    for name, text in WHAT.items():
        kind = kinds.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        _add_common(kind)
        if name == "ablate":
            kind.add_argument("names", nargs="*", metavar="NAME", help="rope, gamma, layout, ... (default: all)")
        if name == "speed":
            kind.add_argument("names", nargs="*", metavar="NAME", help="baseline, floor, ... (default: all)")
        if name in ("speed", "all"):
            kind.add_argument(
                "--compile", action="store_true", help="baseline and floor with torch.compile too: minutes more"
            )
        if name in ("accuracy", "decode", "serve"):
            kind.add_argument("--methods", metavar="A,B", help="some methods, the first is what ratios compare with")
        if name == "decode":
            kind.add_argument(
                "--overlap", action="store_true", help="the draft in a process of its own, drafting ahead"
            )
            kind.add_argument("--batches", default="1", metavar="N,M", help="prompts decoded together (default 1)")
        if name in ("serve", "all"):
            kind.add_argument("--concurrency", metavar="N,M", help=f"clients at a time (default {CONCURRENCY})")
        if name == "serve":
            kind.add_argument("--url", metavar="URL", help="a running server; else one is started")
        kind.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n", type=int, metavar="N", help="prompts a family or file (default: sized for the command)")
    parser.add_argument("--families", metavar="A,B", help=f"ask held-out questions of some of {', '.join(FAMILIES)}")
    parser.add_argument(
        "--prompts", type=Path, nargs="+", metavar="FILE", help="prompts or data sets (default: the families)"
    )
    parser.add_argument(
        "--shots", type=int, metavar="N", help="examples before a data set's question (default: its own)"
    )
    parser.add_argument("--block-sizes", metavar="B,B", help="default 4,8 (serve: the first; --quick: 4)")
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="length of an answer at most (default 512; of random weights 128)"
    )
    parser.add_argument("--quick", action="store_true", help="few prompts: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    parser.add_argument("--results", type=Path, metavar="DIR", help="write numbers, document and plots there")
    parser.add_argument("--target", default=SHIPPED, metavar="DIR", help="default: the shipped one")
    parser.add_argument("--draft", default=SHIPPED, metavar="DIR", help="default: the shipped one")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="torch threads (default 1)")
    for name in ("device", "dtype", "runner"):
        add_worker_option(parser, name)
    parser.add_argument("--random-weights", metavar="DRAFT,TARGET", help=f"shapes without weights: {', '.join(SHAPES)}")
    parser.add_argument(
        "--synthetic-acceptance", type=float, metavar="A", help="draft the target's own tokens, a fraction A unspoilt"
    )


def run(args: argparse.Namespace) -> int:
    need_measurements("bench")
    from simsd_bench.report.results import document, finish, save

    kinds = [args.what] if args.what != "all" else ["accuracy", "decode", "approx", "ablate", "speed", "serve"]
    if args.what == "all" and (not args.results or args.json):
        raise ConfigError("bench all writes several reports: name a --results directory, and no --json")
    spec = _spec(args)
    for kind in kinds:
        asked = _asked(args, kind)
        with _progress() as note:
            report = MEASURE[kind](args, spec, asked, note)
        report = finish(report, spec, "simsd " + shlex.join(sys.argv[1:]), _describe(asked))
        if args.json:
            args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        if args.results:
            for path in save(report, args.results):
                print(f"simsd bench: wrote {path}", file=sys.stderr)
        if args.what != "all":
            print(document(report))
    return 0


def _spec(args: argparse.Namespace) -> "PairSpec":
    from simsd_bench.measure.pair import PairSpec

    shapes = tuple(args.random_weights.split(",")) if args.random_weights else None
    if shapes is not None and len(shapes) != 2:
        raise ConfigError(f"--random-weights takes DRAFT,TARGET; got {args.random_weights!r}")
    return PairSpec(
        args.target,
        args.draft,
        args.threads,
        args.device,
        args.dtype,
        shapes,
        args.synthetic_acceptance,
        args.runner,
        getattr(args, "overlap", False),
    )


def _asked(args: argparse.Namespace, kind: str) -> "list[Item]":
    from simsd_bench.measure.prompts import family_items, file_items

    n = args.n if args.n is not None else FULL[kind]
    if n < 1:
        raise ConfigError(f"--n must be at least 1; got {n}")
    families = _families(args, kind)
    found = file_items(args.prompts, n, args.shots) if args.prompts else family_items(families, n)
    if args.quick and args.n is None:
        found = found[: QUICK[kind]]
    # Random weights have learnt nothing, so their answers are not graded.
    return [dataclasses.replace(item, grade=None) for item in found] if args.random_weights else found


def _families(args: argparse.Namespace, kind: str) -> list[str]:
    return _names("--families", args.families, tuple(FAMILIES), DEFAULT_FAMILIES.get(kind, ("lists",)))


def _describe(asked: "list[Item]") -> str:
    counts: dict[str, int] = {}
    for item in asked:
        counts[item.source] = counts.get(item.source, 0) + 1
    return ", ".join(f"{count} of {source}" for source, count in counts.items())


def _accuracy(args: argparse.Namespace, spec: "PairSpec", asked: "list[Item]", note: Note) -> dict[str, Any]:
    from simsd_bench.measure import accuracy
    from simsd_bench.measure.methods import METHODS

    names = _names("--methods", getattr(args, "methods", None), METHODS, accuracy.METHODS)
    n = args.n if args.n is not None else QUICK["accuracy"] if args.quick else FULL["accuracy"]
    families = _families(args, "accuracy")
    return accuracy.run(spec, families, n, _block_sizes(args), names, _protocol(args, spec), note)


def _decode(args: argparse.Namespace, spec: "PairSpec", asked: "list[Item]", note: Note) -> dict[str, Any]:
    from simsd_bench.measure import decode
    from simsd_bench.measure.methods import METHODS

    names = _names("--methods", getattr(args, "methods", None), METHODS, METHODS)
    batches = _integers("--batches", getattr(args, "batches", "1"))
    return decode.run(spec, asked, _block_sizes(args), names, _protocol(args, spec), batches, note)


def _ablate(args: argparse.Namespace, spec: "PairSpec", asked: "list[Item]", note: Note) -> dict[str, Any]:
    from simsd_bench.measure import ablate

    names = _names("ablate", ",".join(getattr(args, "names", ())) or None, ablate.ABLATIONS, ablate.ABLATIONS)
    return ablate.run(spec, asked, _block_sizes(args), names, _protocol(args, spec), note)


def _approx(args: argparse.Namespace, spec: "PairSpec", asked: "list[Item]", note: Note) -> dict[str, Any]:
    from simsd_bench.measure import approx

    return approx.run(spec, asked, _block_sizes(args), note)


def _serve(args: argparse.Namespace, spec: "PairSpec", asked: "list[Item]", note: Note) -> dict[str, Any]:
    from simsd_bench.measure import sweep
    from simsd_bench.measure.methods import METHODS

    names = _names("--methods", getattr(args, "methods", None), METHODS, sweep.DEFAULT_METHODS)
    levels = _integers("--concurrency", args.concurrency or (QUICK_CONCURRENCY if args.quick else CONCURRENCY))
    url = getattr(args, "url", None)
    return sweep.run(spec, asked, _block_sizes(args)[0], names, levels, _protocol(args, spec), url, note)


def _speed(args: argparse.Namespace, spec: "PairSpec", asked: "list[Item]", note: Note) -> dict[str, Any]:
    from simsd_bench.measure import speed
    from simsd_bench.measure.rounds import QUICK as QUICK_SIZES
    from simsd_bench.measure.rounds import Sizes

    given = ",".join(getattr(args, "names", ())) or None
    names = _names("speed", given, speed.MEASUREMENTS, speed.MEASUREMENTS)
    sizes = QUICK_SIZES if args.quick else Sizes()
    return speed.run(spec, asked, _block_sizes(args), names, sizes, args.compile, note)


MEASURE = {
    "accuracy": _accuracy,
    "decode": _decode,
    "ablate": _ablate,
    "approx": _approx,
    "speed": _speed,
    "serve": _serve,
}


def _protocol(args: argparse.Namespace, spec: "PairSpec") -> Any:
    from simsd_bench.measure.methods import Protocol

    return Protocol(args.max_tokens, 1 if args.quick else 3, random_weights=spec.random_weights is not None)


def _names(option: str, given: str | None, known: tuple[str, ...], default: tuple[str, ...]) -> list[str]:
    names = list(default) if given is None else [name.strip() for name in given.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{option}: unknown {unknown[0]!r}; known: {', '.join(known)}")
    return list(dict.fromkeys(names))


def _integers(option: str, given: str) -> list[int]:
    parts = given.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"{option} takes positive numbers with commas between them; got {given!r}")
    return [int(part) for part in parts]


def _block_sizes(args: argparse.Namespace) -> list[int]:
    return _integers("--block-sizes", args.block_sizes or ("4" if args.quick else "4,8"))


@contextmanager
def _progress() -> Iterator[Note]:
    """Report progress on standard error: a line for each part and, on a terminal, a count within it."""
    began = time.perf_counter()
    done = 0

    def note(text: str) -> Callable[[], object]:
        nonlocal done
        done = 0
        print(f"simsd bench: {time.perf_counter() - began:5.0f} s  {text}", file=sys.stderr, flush=True)
        return tick

    def tick() -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(
                f"\rsimsd bench: {time.perf_counter() - began:5.0f} s  {done} ", end="\r", file=sys.stderr, flush=True
            )

    yield note
