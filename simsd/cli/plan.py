"""`simsd plan`: how many pairs a load needs, and the speed to expect by method, lookahead and batch."""

import argparse
import dataclasses
import json
import sys
from typing import Any

from simsd.cli.options import add_command, need_measurements
from simsd.errors import ConfigError
from simsd.models.checkpoint import load_model_config
from simsd.models.config import ModelConfig
from simsd.models.files import resolve_model
from simsd.planning.capacity import Load, Memory, Pair, Plan, Speculation, plan
from simsd.planning.chain import MAX_DEPTH, dynamic_steps, share_of
from simsd.planning.costs import GPUS, Roofline, require
from simsd.planning.shapes import SHAPES, config_of
from simsd.planning.speed import (
    DRAFT_SHARE,
    FORESEEN,
    SHARE,
    STATES,
    Answer,
    Line,
    Machine,
    Way,
    fastest,
    methods,
    survey,
)

EPILOG = """examples:
  simsd plan --rate 5
  simsd plan --gpu h200 --shared --rate 20 --prompt-tokens 1500 --answer-tokens 300 --acceptance 0.9 --latency 4
  simsd plan --rate 5 --bandwidth 1.5 --flops 200 --memory 48 --target my/target --draft my/draft --json
  simsd plan --speed --launch-us 0      predicted tokens/s by method, lookahead and batch, and what bounds them
  simsd plan --speed --gpu l4 --draft-gpu l4 --batches 1,4 --lookahead 0,2 --acceptance 0.95 --json
  simsd plan --check                    the shipped pair on this machine's CPU: predicted, and found under load
"""
COSTS = {
    "bandwidth-share": (0.7, "of the data sheet's memory bandwidth that forwards reach"),
    "flops-share": (0.5, "of the data sheet's FLOP/s that forwards reach"),
    "launch-us": (250.0, "to launch a layer's kernels, in µs; 0 with CUDA graphs"),
    "overhead-ms": (2.0, "of a round: transport between processes and the loop"),
}
"""Option -> its default and help."""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "plan",
        help="how many pairs a load needs, and how fast they are",
        description="How many pairs a load needs, what it may expect of them, and what fits their GPUs. Arithmetic "
        "with the assumptions of docs/capacity.md; nothing is loaded.",
        epilog=EPILOG,
    )
    _add_machine(parser)
    _add_pair(parser)
    load = parser.add_argument_group("load")
    load.add_argument("--rate", type=float, metavar="R", help="requests/s of the whole server")
    load.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="of a request (default 512)")
    load.add_argument(
        "--cached-tokens", type=int, default=0, metavar="N", help="of them in the prefix cache (default 0)"
    )
    load.add_argument("--answer-tokens", type=int, default=256, metavar="N", help="of a request (default 256)")
    load.add_argument("--max-tokens", type=int, metavar="N", help="what a request reserves (default: answer-tokens)")
    load.add_argument("--max-running", type=int, default=64, metavar="N", help="requests of a pair (default 64)")
    load.add_argument("--prefill-rows", type=int, default=256, metavar="N", help="prompt tokens a round (default 256)")
    load.add_argument("--headroom", type=float, default=0.8, metavar="U", help="utilisation to plan for (default 0.8)")
    load.add_argument("--latency", type=float, metavar="S", help="seconds that a request may take, queue aside")
    _add_speed(parser)
    checking = parser.add_argument_group("check")
    checking.add_argument(
        "--check", action="store_true", help="measure the shipped pair here instead, and compare; also with --speed"
    )
    checking.add_argument("--clients", default="1,2,4,8", metavar="N,M", help="clients at a time (default 1,2,4,8)")
    checking.add_argument("--prompts", type=int, default=60, metavar="N", help="with --speed (default 60)")
    checking.add_argument(
        "--overlap", action="store_true", help="with --speed: the draft in a process of its own, beside the target"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument("--gpu", choices=sorted(GPUS), default="h100", help="of the target (default h100)")
    group.add_argument("--draft-gpu", choices=sorted(GPUS), help="of the draft (default: as the target's)")
    group.add_argument("--shared", action="store_true", help="both models on one GPU")
    for name, unit in (("bandwidth", "TB/s"), ("flops", "TFLOP/s, dense bfloat16"), ("memory", "GB")):
        group.add_argument(
            f"--{name}", type=float, metavar="X", help=f"of the GPUs, instead of the data sheet's; {unit}"
        )
    for name, (default, text) in COSTS.items():
        group.add_argument(f"--{name}", type=float, default=default, metavar="X", help=f"{text} (default {default:g})")


def _add_pair(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pair")
    shapes = f"a directory, a hub name, or {', '.join(SHAPES)}"
    group.add_argument("--target", default="sdar-8b", metavar="NAME", help=f"{shapes} (default sdar-8b)")
    group.add_argument("--draft", default="sdar-1.7b", metavar="NAME", help="as --target; none: vanilla")
    group.add_argument("--weight-bytes", type=int, default=2, choices=(1, 2, 4), help="of a weight (default 2)")
    group.add_argument("--block-size", type=int, metavar="B", help="default: the target's, else 4")
    group.add_argument("--gamma", type=int, default=0, metavar="N", help="tokens drafted a round (0: a block)")
    group.add_argument("--draft-steps", type=int, default=0, metavar="N", help="forwards for them (0: gamma)")
    group.add_argument(
        "--acceptance", type=float, default=0.9, metavar="A", help="accepted of judged tokens, 0 to 1 (default 0.9)"
    )


def _add_speed(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speed")
    group.add_argument(
        "--speed", action="store_true", help="predict tokens/s by method, lookahead and batch instead of pairs"
    )
    group.add_argument("--batches", metavar="N,M", help="sequences together (default 1,8,32; with --check: 1,4)")
    group.add_argument(
        "--lookahead",
        metavar="N,M",
        help=f"blocks drafted beyond the open one (default: 0 to {MAX_DEPTH}; with --check: 0)",
    )
    group.add_argument(
        "--tokens-a-step",
        type=float,
        metavar="T",
        help=f"that dynamic remasking reveals in an empty block (default: the shipped pair's, {_tokens(4):.1f} at "
        f"B = 4 and {_tokens(8):.1f} at B = 8)",
    )
    for name, default, text in (
        (
            "--draft-share",
            DRAFT_SHARE,
            "exact: share of a block's positions that the draft is sure of, which says how many states are looked at",
        ),
        (
            "--foreseen",
            FORESEEN,
            "exact: chance that a step whose tokens were drafted leads to a state that is looked "
            "at, if the block is not full",
        ),
    ):
        group.add_argument(
            name, type=float, default=default, metavar="X", help=f"{text} (default {default:g}, the shipped pair's)"
        )
    group.add_argument("--states", type=int, default=STATES, metavar="N", help=f"exact: of a block (default {STATES})")


def _tokens(block_size: int) -> float:
    """Return the tokens of a dynamic step in an empty block, with the shipped pair's target."""
    return block_size / dynamic_steps(SHARE, block_size, 0, block_size)


def run(args: argparse.Namespace) -> int:
    if args.check:
        return _check_speed(args) if args.speed else _check(args)
    if args.speed:
        return _speed(args)
    if args.rate is None:
        raise ConfigError("--rate is needed: requests/s of the whole server; or --speed")
    pair, memory, most_running = _pair(args)
    found = plan(pair, _load(args, args.rate), most_running, args.headroom, args.latency)
    facts = dataclasses.asdict(found) | {"memory": dataclasses.asdict(memory)}
    print(json.dumps(facts) if args.json else table(found, memory, _reserved(args)))
    return 0


def _load(args: argparse.Namespace, rate: float) -> Load:
    return Load(rate, args.prompt_tokens, args.answer_tokens, args.cached_tokens)


def _reserved(args: argparse.Namespace) -> int:
    """Return the KV tokens that a request holds from admission to its end."""
    return int(args.prompt_tokens + (args.answer_tokens if args.max_tokens is None else args.max_tokens))


def _pair(args: argparse.Namespace) -> tuple[Pair, Memory, int]:
    """Return the pair, its memory, and how many requests it can hold at a time."""
    if args.max_running < 1:
        raise ConfigError(f"max_running must be at least 1; got {args.max_running}")
    target, draft, memory, fit = _models(args)
    block_size = _block_size(args, target)
    gamma = (args.gamma or block_size) if draft else 0
    speculation = Speculation(block_size, gamma, (args.draft_steps or gamma) if draft else 0, args.acceptance)
    pair = Pair(target, draft, speculation, args.overhead_ms / 1e3, args.prefill_rows)
    return pair, memory, min(args.max_running, fit)


def _models(args: argparse.Namespace) -> tuple[Roofline, Roofline | None, Memory, int]:
    """Return target, draft, their memory, and how many requests fit it at a time."""
    if args.max_tokens is not None and args.max_tokens < args.answer_tokens:
        raise ConfigError(f"max_tokens must be at least answer_tokens, {args.answer_tokens}; got {args.max_tokens}")
    target = _roofline(args, _shape(args.target, "target"), args.gpu)
    draft = None
    if args.draft != "none":
        draft = _roofline(args, _shape(args.draft, "draft"), args.draft_gpu or args.gpu)
    memory = Memory.of(target, draft, args.shared)
    return target, draft, memory, memory.kv_tokens // _reserved(args)


def _block_size(args: argparse.Namespace, target: Roofline) -> int:
    return args.block_size or target.model.block_size or 4


def _roofline(args: argparse.Namespace, shape: ModelConfig, gpu_name: str) -> Roofline:
    given = {"bandwidth": args.bandwidth, "flops": args.flops, "memory": args.memory}
    scale = {"bandwidth": 1e12, "flops": 1e12, "memory": 1e9}
    told = {name: value * scale[name] for name, value in given.items() if value is not None}
    gpu = dataclasses.replace(GPUS[gpu_name], **told)
    return Roofline(shape, gpu, args.weight_bytes, args.bandwidth_share, args.flops_share, args.launch_us / 1e6)


def _shape(name: str, role: str) -> ModelConfig:
    """Return the settings of a named shape, or those in a checkpoint's config.json."""
    return config_of(name) if name in SHAPES else load_model_config(resolve_model(name, role), name)


def table(found: Plan, memory: Memory, reserved: int) -> str:
    """Return the plan as a table of text. `reserved`: KV tokens that a request holds."""
    kv_tokens = min(memory.kv_tokens, found.most_running * reserved)
    lines = {
        "pairs": f"{found.pairs}, at {100 * found.utilisation:.0f} % of the {found.most_requests_per_s:.2f} requests/s "
        "that they can",
        "load": f"{found.requests_per_s:g} requests/s, {found.tokens_per_s:.0f} tokens/s",
        "in flight": f"{found.running:.1f} requests a pair, {found.most_running} at most",
        "a request": f"{found.request_s:.2f} s, first token after {found.first_token_s:.2f} s, "
        f"{found.user_tokens_per_s:.0f} tokens/s; by vanilla {found.vanilla_request_s:.2f} s",
        "a round": f"{1e3 * found.round_s:.1f} ms, {found.tokens_per_round:.2f} tokens of each request",
        "weights": f"target {memory.target_weights / 1e9:.1f} GB, draft {memory.draft_weights / 1e9:.1f} GB",
        "KV of a token": f"target {memory.target_kv / 1024:.0f} KiB, draft {memory.draft_kv / 1024:.0f} KiB; "
        f"room for {memory.kv_tokens} tokens",
        "serve with": f"pairs: {found.pairs}, max_running: {found.most_running}, kv_tokens: {kv_tokens}",
    }
    return "\n".join(f"{name:<14} {text}" for name, text in lines.items())


def _speed(args: argparse.Namespace) -> int:
    target, draft, memory, fit = _models(args)
    block_size = _block_size(args, target)
    if args.gamma not in (0, block_size):
        raise ConfigError(f"--speed predicts whole drafted blocks: gamma must be 0 or {block_size}; got {args.gamma}")
    batches = _numbers(args.batches or "1,8,32", "--batches", 1)
    fitting, left_out = [[batch for batch in batches if (batch <= fit) == fits] for fits in (True, False)]
    if not fitting:
        raise ConfigError(f"the KV of {min(batches)} requests does not fit; that of {fit} does")
    share = _share(args, block_size)
    lines = _survey(args, Machine(target, draft, args.overhead_ms / 1e3), block_size, share, fitting)
    if args.json:
        facts = {
            "prediction": "tokens/s",
            "block_size": block_size,
            "acceptance": args.acceptance,
            "tokens_a_step": block_size / dynamic_steps(share, block_size, 0, block_size),
            "memory": dataclasses.asdict(memory),
            "left_out": left_out,
            "lines": [_facts(line) for line in lines],
            "best": [_facts(fastest(line for line in lines if line.batch == batch)) for batch in fitting],
        }
        print(json.dumps(facts))
    else:
        print(speed_table(lines))
        for batch in left_out:
            _note(f"a batch of {batch} is left out: the KV of {fit} requests fits")
    return 0


def _share(args: argparse.Namespace, block_size: int) -> float:
    """Return the share of open positions that a dynamic step reveals."""
    if args.tokens_a_step is None:
        return SHARE
    require("tokens_a_step", args.tokens_a_step, 1, block_size)
    return share_of(lambda share: dynamic_steps(share, block_size, 0, block_size), block_size / args.tokens_a_step)


def _survey(
    args: argparse.Namespace, machine: Machine, block_size: int, share: float, batches: list[int]
) -> list[Line]:
    """Predict what the options ask for."""
    load = _load(args, 0.0)
    named = methods(args.acceptance, share, args.draft_share, args.foreseen, args.states)
    ways: tuple[Way, ...] = ("in turns",) if args.shared else ("in turns", "beside")
    return survey(
        machine,
        {name: method for name, method in named.items() if machine.draft is not None or not method.drafts},
        block_size,
        args.draft_steps or 1,
        Answer(load.prompt_tokens, load.answer_tokens),
        _numbers(args.lookahead or ",".join(map(str, range(MAX_DEPTH + 1))), "--lookahead", 0),
        batches,
        ways,
    )


def _facts(line: Line) -> dict[str, Any]:
    """Return a predicted setting as plain numbers."""
    setting, found = line.setting, line.prediction
    return {
        "method": line.name,
        "lookahead": setting.depth,
        "way": setting.way if setting.method.drafts else None,
        "batch": line.batch,
        "tokens_per_s": found.tokens_per_s,
        "tokens_per_verification": found.tokens_per_verification,
        "round_s": found.seconds * line.batch / found.rounds,
        "parts": {name: seconds / found.seconds for name, seconds in found.parts.items()},
        "bound": found.bound,
    }


def speed_table(lines: list[Line]) -> str:
    """Return a survey as a table of text, with the fastest setting of each batch below."""
    batches = list(dict.fromkeys(line.batch for line in lines))
    ways = list(dict.fromkeys(line.setting.way for line in lines if line.setting.method.drafts)) or ["in turns"]
    cells: dict[tuple[str, int], dict[tuple[int, str], str]] = {}
    for line in lines:
        row = cells.setdefault((line.name, line.setting.depth), {})
        row[line.batch, line.setting.way] = f"{line.prediction.tokens_per_s:.0f}"
    columns = [(batch, way) for batch in batches for way in ways]
    texts = ["Predicted tokens/s of the whole batch, decoding alone (docs/capacity.md)."]
    if len(ways) > 1:
        texts.append("Draft and target take turns, or work beside each other on devices of their own.")
    texts += ["", f"{'':<21} {'lookahead':>9}" + "".join(f"{f'batch {batch}':>12}" for batch, _ in columns)]
    texts += [f"{'':<31}" + "".join(f"{way:>12}" for _, way in columns)]
    for (name, depth), row in cells.items():
        drafts = any(line.setting.method.drafts for line in lines if line.name == name)
        texts.append(
            f"{name:<21} {depth if drafts else '-':>9}" + "".join(f"{row.get(column, ''):>12}" for column in columns)
        )
    texts.append("")
    return "\n".join([*texts, *(_best(fastest(line for line in lines if line.batch == batch)) for batch in batches)])


def _best(line: Line) -> str:
    found, setting = line.prediction, line.setting
    how = f", lookahead {setting.depth}, {setting.way}" if setting.method.drafts else ""
    round_s = found.seconds * line.batch / found.rounds
    parts = ", ".join(f"{name} {1e3 * round_s * s / found.seconds:.1f}" for name, s in found.parts.items() if s)
    return (
        f"best at batch {line.batch}: {line.name}{how}: {found.tokens_per_s:.0f} tokens/s, "
        f"{found.tokens_per_verification:.2f} tokens a verification; bounded by {found.bound} ({parts} ms a round)"
    )


def _check(args: argparse.Namespace) -> int:
    need_measurements("plan --check")
    from simsd.messages.request import DecodeParams
    from simsd_bench.measure.capacity import check, markdown
    from simsd_bench.measure.pair import PairSpec

    clients = _numbers(args.clients, "--clients", 1)
    params = DecodeParams(max_tokens=64, ignore_eos=True, gamma=args.gamma, draft_steps=args.draft_steps or 1)
    report = check(PairSpec(device="cpu"), args.block_size or 4, params, clients, args.overhead_ms / 1e3, _note)
    print(json.dumps(report, default=dataclasses.asdict) if args.json else markdown(report))
    return 0


def _check_speed(args: argparse.Namespace) -> int:
    need_measurements("plan --check")
    from simsd_bench.measure.pair import PairSpec
    from simsd_bench.measure.prediction import check, markdown
    from simsd_bench.measure.prompts import family_items

    block_sizes = [args.block_size] if args.block_size else [4, 8]
    batches, depths = _numbers(args.batches or "1,4", "--batches", 1), _numbers(args.lookahead or "0", "--lookahead", 0)
    if args.prompts < 1:
        raise ConfigError(f"prompts must be at least 1; got {args.prompts}")
    asked = family_items(-(-args.prompts // 4), seed=17)[: args.prompts]
    spec = PairSpec(device="cpu", overlap=args.overlap)
    report = check(spec, asked, block_sizes, batches, depths, args.answer_tokens, _note)
    print(json.dumps(report) if args.json else markdown(report))
    return 0


def _numbers(text: str, option: str, least: int) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < least:
        raise ConfigError(f"{option} takes whole numbers from {least} with commas between; got {text!r}")
    return found


def _note(text: str) -> None:
    print(f"simsd plan: {text}", file=sys.stderr, flush=True)
