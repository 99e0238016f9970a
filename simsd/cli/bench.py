"""`simsd bench`: the figures in docs/results, measured again."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from simsd.config import SHIPPED

EPILOG = """examples:
  simsd bench first                                   the table of docs/results/first.md, about ten minutes on two cores
  simsd bench first --n 5 --sweep-n 2 --http-n 2      a quick look
  simsd bench first --out docs/results/first.md --json first.json
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="measure the methods",
        description="Measure speed, acceptance and accuracy of the methods on a pair.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("first",), help="which figures")
    parser.add_argument("--n", type=int, default=40, metavar="N", help="questions a family (default 40)")
    parser.add_argument("--sweep-n", type=int, default=6, metavar="N", help="... for gamma and draft_steps (default 6)")
    parser.add_argument("--http-n", type=int, default=15, metavar="N", help="... over HTTP, 0: none (default 15)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="torch threads (default 1)")
    parser.add_argument("--target", default=SHIPPED, metavar="DIR", help="default: the shipped one")
    parser.add_argument("--draft", default=SHIPPED, metavar="DIR", help="default: the shipped one")
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="write the tables there")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="write the numbers there")


def run(args: argparse.Namespace) -> int:
    from simsd.bench.first import run as run_first
    from simsd.bench.report import first_markdown

    def note(text: str) -> None:
        print(f"simsd bench: {text}", file=sys.stderr, flush=True)

    report = run_first(args.n, args.sweep_n, args.http_n, args.threads, args.target, args.draft, note)
    command = f"simsd bench first --n {args.n} --sweep-n {args.sweep_n} --http-n {args.http_n} --threads {args.threads}"
    markdown = first_markdown(report, command)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if args.out:
        args.out.write_text(markdown)
    print(markdown)
    return 0
