"""`simsd eval`: how many questions the pair answers correctly, and what that costs."""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from simsd.cli.options import add_command, add_decode_options, add_model_options, decode_options, load_loop
from simsd.cli.report import table, total
from simsd.errors import RequestError
from simsd.eval.families import FAMILIES, Split
from simsd.messages.request import DecodeParams, Request, Stats

if TYPE_CHECKING:
    from simsd.eval.datasets import Item
    from simsd.loop.loop import Loop

DESCRIPTION = """Ask questions and grade the answers: of the families that the shipped pair was taught,
or with --data of public data sets.

Held-out questions have values that training never saw, in its wordings; --split phrasing has wordings, names and
objects that it never saw. Each part of a list of questions counts as an answer. The interval is Wilson's at 95 %.
Question i is decoded with seed + i, so that answers sampled at a temperature do not share their noise.
"""
EPILOG = """data sets: gsm8k (4 examples before the question, final number), mbpp (3, tests run in a sandbox),
triviaqa (none, an alias as whole words), mmlu (5 of the subject, letter). A file is .jsonl, .json or .parquet with the
columns that the hub has; without a file the set is fetched from the hub. The examples come from --shots-data (from the
hub: the set's own split for them), else from the file's first questions, which are then not asked. Answers have up to
512 tokens (triviaqa 64, mmlu 16) unless --max-tokens says otherwise.

With --json, one object: method, split, block_size, n (questions a family or set), seconds (of the wall clock), families
{NAME: n, correct, accuracy, low, high}, accuracy (mean of the families), and the sums that `generate --stats` prints:
rounds, target_forwards, draft_forwards, acceptance, tokens_per_target_forward, tokens_per_s, ...

examples:
  simsd eval --n 100
  simsd eval --families math,code --n 300 --method exact --block-size 8 --json
  simsd eval --target JetLM/SDAR-8B-Chat --draft JetLM/SDAR-1.7B-Chat --data gsm8k --data mmlu --out answers.jsonl
  simsd eval --data gsm8k=test.jsonl --shots-data gsm8k=train.jsonl --shots 4
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "eval",
        help="grade the pair on held-out questions or public data sets",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    names = ",".join(FAMILIES)
    parser.add_argument("--families", metavar="A,B", help=f"some of {names} (default: all, unless --data is given)")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME[=FILE]", help="a public data set (several times)"
    )
    parser.add_argument(
        "--shots-data", action="append", default=[], metavar="NAME=FILE", help="where a set's examples come from"
    )
    parser.add_argument("--shots", type=int, metavar="N", help="examples before a question (default: the paper's)")
    parser.add_argument("--n", type=int, default=100, metavar="N", help="questions a family or set (default 100)")
    parser.add_argument("--split", choices=get_args(Split), default="heldout", help="of families (default: heldout)")
    parser.add_argument("--question-seed", type=int, default=0, metavar="N", help="draws other questions (default 0)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.jsonl", help="keep answers there; a rerun goes on where it was stopped"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_decode_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    from simsd.eval.datasets import item_scores

    params = DecodeParams(**decode_options(args))
    items = [*_family_items(args), *_data_items(args)]
    loop = load_loop(args, needs_draft=params.needs_draft)
    requests = [_request(args, loop, params, index, item) for index, item in enumerate(items)]
    began = time.perf_counter()
    answers = _answer(args, loop, params, requests)
    seconds = time.perf_counter() - began
    scores = item_scores(items, [text for text, _ in answers])
    sums = total(stats for _, stats in answers)
    report = {
        "method": params.method,
        "split": args.split,
        "block_size": loop.target.info.block_size,
        "n": args.n,
        "seconds": seconds,
        "families": {name: dataclasses.asdict(found) for name, found in scores.items()},
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


def _family_items(args: argparse.Namespace) -> "list[Item]":
    from simsd.eval.datasets import family_item

    if args.families is None and args.data:
        return []
    given = ",".join(FAMILIES) if args.families is None else args.families
    names = [name.strip() for name in given.split(",") if name.strip()]
    unknown = [name for name in names if name not in FAMILIES]
    if unknown or not names:
        raise RequestError(f"--families takes some of {', '.join(FAMILIES)}; got {args.families!r}", "families")
    if args.n < 1:
        raise RequestError(f"--n must be at least 1; got {args.n}", "n")
    questions = [q for name in names for q in FAMILIES[name].questions(args.split, args.n, args.question_seed)]
    return [family_item(question, index) for index, question in enumerate(questions)]


def _data_items(args: argparse.Namespace) -> "list[Item]":
    from simsd.eval.datasets import DATA_SETS, fetch, items, read_rows

    if args.shots is not None and args.shots < 0:
        raise RequestError(f"--shots must be at least 0; got {args.shots}", "shots")
    files, shot_files = _by_name("--data", args.data), _by_name("--shots-data", args.shots_data)
    for name in shot_files.keys() - files.keys():
        raise RequestError(f"--shots-data {name}: there is no --data {name}", "shots_data")
    found = []
    for name, path in files.items():
        data_set, shots_path = DATA_SETS[name], shot_files.get(name)
        if path is None and shots_path is None and data_set.shots_file is not None:
            shots_path = fetch(data_set.repo, data_set.shots_file)
        rows = read_rows(path or fetch(data_set.repo, data_set.test))
        found += items(data_set, rows, args.n, args.shots, None if shots_path is None else read_rows(shots_path))
    return found


def _by_name(option: str, given: list[str]) -> dict[str, Path | None]:
    """Parse NAME[=FILE] arguments; the value is None where no file is named."""
    from simsd.eval.datasets import DATA_SETS

    files: dict[str, Path | None] = {}
    for each in given:
        name, _, file = each.partition("=")
        if name not in DATA_SETS or name in files:
            raise RequestError(f"{option} takes each of {', '.join(DATA_SETS)} once; got {each!r}", "data")
        files[name] = Path(file) if file else None
    return files


def _request(args: argparse.Namespace, loop: "Loop", params: DecodeParams, index: int, item: "Item") -> Request:
    """Make one question's request. It is checked now, so that one that does not fit cannot waste a long run."""
    from simsd.eval.datasets import DATA_SETS

    if item.source in DATA_SETS and args.max_tokens is None:
        params = dataclasses.replace(params, max_tokens=DATA_SETS[item.source].max_tokens)
    params = dataclasses.replace(params, seed=params.seed + index)
    request = Request(item.key, loop.tokenizer.encode_messages(item.messages, tools=item.tools), params)
    try:
        loop.check(request)
    except RequestError as error:
        raise RequestError(f"{item.key}: {error}", error.param) from error
    return request


def _answer(
    args: argparse.Namespace, loop: "Loop", params: DecodeParams, requests: list[Request]
) -> list[tuple[str, Stats]]:
    """Return (text, stats) of each request. Requests whose answers stand in --out already are not decoded again."""
    from tqdm import tqdm

    from simsd.eval.answer_log import AnswerLog
    from simsd.in_process import generate_all

    names = ("target", "draft", "dtype", "split", "question_seed", "shots", "max_tokens")
    settings = {name: getattr(args, name) for name in names} | {"block_size": loop.target.info.block_size}
    settings |= dataclasses.asdict(params) | {"max_tokens": args.max_tokens}
    log = AnswerLog(args.out, settings) if args.out else None
    answers = {key: (line["text"], _stats(line["stats"])) for key, line in log.done.items()} if log else {}
    left = [request for request in requests if request.request_id not in answers]
    bar = tqdm(
        total=len(requests),
        initial=len(requests) - len(left),
        unit="answer",
        delay=2,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
    )

    def keep(index: int, completion: Any) -> None:
        answers[left[index].request_id] = (completion.text, completion.stats)
        if log:
            log.add(left[index].request_id, completion.text, completion.stats.to_dict())
        bar.update()

    with bar:
        generate_all(loop, left, keep)
    return [answers[request.request_id] for request in requests]


def _stats(facts: dict[str, Any]) -> Stats:
    """Read counters from JSON, where keys are strings."""
    histogram = {int(accepted): rounds for accepted, rounds in facts["accept_histogram"].items()}
    return Stats(**facts | {"accept_histogram": histogram})
