"""`simsd generate`: answers in this process, without a server."""

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from simsd.cli.options import (
    add_command,
    add_decode_options,
    add_model_options,
    decode_options,
    decode_params,
    load_loop,
)
from simsd.cli.report import SUMMED, table, total
from simsd.errors import RequestError
from simsd.messages.presets import on_top_of
from simsd.messages.request import Request, Stats

if TYPE_CHECKING:
    from simsd.cli.prompts import Prompt
    from simsd.in_process import Completion
    from simsd.loop.loop import Loop

DESCRIPTION = """Answer one prompt, or all prompts of a file, in this process.

A prompt is one user turn of the model's chat template; with --raw it is the text that the model continues.
"""
EPILOG = """lines of FILE.jsonl:
  {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}, and any decoding option as a key of its own
  ("temperature": 1, "max_tokens": 64, "stop": ["\\n"], ...), which goes before the command line's.
With --json, one line out for each prompt, in the same order: prompt, text, token_ids, finish_reason, prompt_tokens,
completion_tokens, rounds, target_forwards, draft_forwards, drafted, accepted, recovered, bonus, fallback_tokens,
prefill_s, decode_s, accept_histogram. (prompt: as given; for messages, the text that the template made of them.)

examples:
  simsd generate "What is the capital of France?" --stats
  simsd generate "Complete me" --raw --method vanilla --remasking dynamic --threshold 0.9
  simsd generate --prompts questions.jsonl --json --method exact --temperature 1 --seed 7 > answers.jsonl
  simsd generate "Hi" --target JetLM/SDAR-8B-Chat --draft JetLM/SDAR-1.7B-Chat
"""
RESULT_STATS = (*SUMMED, "accept_histogram")


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "generate",
        help="answer prompts in this process",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("prompt", nargs="?", help="what to answer")
    parser.add_argument("--prompts", metavar="FILE.jsonl", help='prompts as JSON lines; "-" is standard input')
    parser.add_argument("--raw", action="store_true", help="continue the prompt's text; no chat template")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each prompt")
    parser.add_argument(
        "--stats", action="store_true", help="print rounds, forwards, acceptance (to standard error with --json)"
    )
    add_decode_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    from simsd.cli.prompts import Prompt, read_prompts

    if (args.prompt is None) == (args.prompts is None):
        raise RequestError("give either a prompt or --prompts FILE.jsonl")
    if args.prompts is None:
        prompts = [Prompt("prompt", decode_params(args), text=args.prompt)]
    else:
        prompts = read_prompts(args.prompts, on_top_of({}, decode_options(args)))
    loop = load_loop(args, needs_draft=any(prompt.params.needs_draft for prompt in prompts))
    shown, requests = _requests(loop, prompts, args.raw)
    if args.prompt is not None and not args.json:
        all_stats = [asyncio.run(_type_out(loop, requests[0]))]
    else:
        all_stats = _answer_all(loop, shown, requests, as_json=args.json)
    if args.stats:
        print(table(total(all_stats)), file=sys.stderr if args.json else sys.stdout)
    return 0


def _requests(loop: "Loop", prompts: "list[Prompt]", raw: bool) -> tuple[list[str], list[Request]]:
    """Render and check all prompts before the first token is decoded, so that a bad line cannot waste a long run.

    Returns the prompts as they are reported, and their requests.
    """
    shown, requests = [], []
    for index, prompt in enumerate(prompts):
        text, ids = prompt.rendered(loop.tokenizer, raw)
        request = Request(str(index), ids, prompt.params)
        try:
            loop.check(request)
        except RequestError as error:
            raise RequestError(f"{prompt.where}: {error}", error.param) from error
        shown.append(text)
        requests.append(request)
    return shown, requests


async def _type_out(loop: "Loop", request: Request) -> Stats:
    """Print one answer as it becomes visible."""
    rounds = asyncio.create_task(loop.run())
    stats = Stats()
    try:
        async for output in loop.generate(request):
            print(output.text, end="", flush=True)
            stats = output.stats or stats
    finally:
        rounds.cancel()
        print()
    return stats


def _answer_all(loop: "Loop", shown: list[str], requests: list[Request], as_json: bool) -> list[Stats]:
    """Print the answers in the order of the prompts, each as soon as those before it are done."""
    from tqdm import tqdm

    from simsd.in_process import generate_all

    done: dict[int, Completion] = {}
    printed = 0
    # On a terminal, a bar appears after two seconds.
    bar = tqdm(total=len(requests), unit="answer", delay=2, disable=not sys.stderr.isatty(), file=sys.stderr)

    def on_done(index: int, completion: "Completion") -> None:
        nonlocal printed
        done[index] = completion
        bar.update()
        while printed in done:
            answer = done[printed]
            print(json.dumps(result(shown[printed], answer)) if as_json else f"{answer.text}\n", flush=True)
            printed += 1

    with bar:
        completions = generate_all(loop, requests, on_done)
    return [completion.stats for completion in completions]


def result(prompt: str, completion: "Completion") -> dict[str, Any]:
    """Return one line of --json. Scripts rely on its keys."""
    return {
        "prompt": prompt,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        **{name: getattr(completion.stats, name) for name in RESULT_STATS},
    }
