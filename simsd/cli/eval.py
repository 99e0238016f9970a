"""`simsd eval`: how many held-out questions the pair answers rightly, and what that cost."""

import argparse
import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from simsd.cli.options import add_decode_options, add_model_options, decode_options, load_loop
from simsd.cli.report import table, total
from simsd.errors import RequestError
from simsd.eval.families import FAMILIES
from simsd.types import DecodeParams, Request

if TYPE_CHECKING:
    from simsd.engine import Completion
    from simsd.eval.question import Question
    from simsd.eval.score import FamilyScore
    from simsd.loop import Loop

DESCRIPTION = """Ask questions of the four families and grade the answers.

Held-out questions are ones that training never saw. The interval is Wilson's at 95 %. Question i is decoded with seed
+ i, so that answers sampled at a temperature do not share their noise.
"""
EPILOG = """With --json, one object: method, split, block_size, n (questions a family), seconds (of the wall clock),
families {NAME: n, correct, accuracy, low, high}, accuracy (mean of the families), and the sums that `generate --stats`
prints: rounds, target_forwards, draft_forwards, acceptance, tokens_per_target_forward, tokens_per_s, ...

examples:
  simsd eval --n 100
  simsd eval --families math,code --n 300 --method exact --block-size 8 --json
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "eval",
        help="grade the pair on held-out questions",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(FAMILIES)
    parser.add_argument("--families", default=names, metavar="A,B", help=f"some of {names} (default: all)")
    parser.add_argument("--n", type=int, default=100, metavar="N", help="questions a family (default 100)")
    parser.add_argument("--split", choices=("heldout", "train"), default="heldout", help="default: heldout")
    parser.add_argument("--question-seed", type=int, default=0, metavar="N", help="draws other questions (default 0)")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_decode_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    params = DecodeParams(**decode_options(args))
    questions = _questions(args)
    loop = load_loop(args, needs_draft=params.needs_draft)
    requests = [
        Request(
            str(index),
            loop.tokenizer.encode_messages([{"role": "user", "content": question.prompt}]),
            dataclasses.replace(params, seed=params.seed + index),
        )
        for index, question in enumerate(questions)
    ]
    began = time.perf_counter()
    completions = _answer(loop, requests)
    seconds = time.perf_counter() - began

    from simsd.eval.score import score

    scores = score(questions, [completion.text for completion in completions])
    sums = total(completion.stats for completion in completions)
    report = {
        "method": params.method,
        "split": args.split,
        "block_size": loop.target.info.block_size,
        "n": args.n,
        "seconds": seconds,
        "families": {name: _facts(found) for name, found in scores.items()},
        "accuracy": sum(found.accuracy for found in scores.values()) / len(scores),
        **sums,
    }
    if args.json:
        print(json.dumps(report))
    else:
        for name, facts in report["families"].items():
            interval = f"[{facts['low']:.3f}, {facts['high']:.3f}]"
            print(f"{name:<18} {facts['accuracy']:.3f} {interval} {facts['correct']} of {facts['n']}")
        print(f"{'mean':<18} {report['accuracy']:.3f}, {seconds:.1f} s\n{table(sums)}")
    return 0


def _questions(args: argparse.Namespace) -> "list[Question]":
    names = [name.strip() for name in args.families.split(",") if name.strip()]
    unknown = [name for name in names if name not in FAMILIES]
    if unknown or not names:
        raise RequestError(f"--families takes some of {', '.join(FAMILIES)}; got {args.families!r}", "families")
    if args.n < 1:
        raise RequestError(f"--n must be at least 1; got {args.n}", "n")
    return [q for name in names for q in FAMILIES[name].questions(args.split, args.n, args.question_seed)]


def _answer(loop: "Loop", requests: list[Request]) -> "list[Completion]":
    from tqdm import tqdm

    from simsd.engine import generate_all

    with tqdm(total=len(requests), unit="answer", delay=2, disable=not sys.stderr.isatty(), file=sys.stderr) as bar:
        return generate_all(loop, requests, lambda _index, _completion: bar.update() and None)


def _facts(found: "FamilyScore") -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("n", "correct", "accuracy", "low", "high")}
