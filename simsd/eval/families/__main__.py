"""Prints questions of a family, for people to read: python -m simsd.eval.families --family math --split phrasing."""

import argparse
from typing import get_args

from simsd.eval.families import FAMILIES
from simsd.eval.question import Split


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m simsd.eval.families", description=__doc__.split(":")[0])
    parser.add_argument("--family", choices=FAMILIES, required=True, help="the family")
    parser.add_argument("--split", choices=get_args(Split), default="train", help="the split (%(default)s)")
    parser.add_argument("--n", type=int, default=10, help="number of questions (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed (%(default)s)")
    args = parser.parse_args(argv)
    for question in FAMILIES[args.family].questions(args.split, args.n, args.seed):
        print(f"{question.prompt}\n  -> " + question.answer.replace("\n", "\n     "))


if __name__ == "__main__":
    main()
