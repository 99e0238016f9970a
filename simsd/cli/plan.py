"""`simsd plan`: how many pairs a load needs, and which speed its requests can expect."""

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
from simsd.planning.capacity import GPUS, Load, Memory, Pair, Plan, Roofline, Speculation, plan
from simsd.planning.shapes import SHAPES, config_of

EPILOG = """examples:
  simsd plan --rate 5
  simsd plan --gpu h200 --shared --rate 20 --prompt-tokens 1500 --answer-tokens 300 --acceptance 0.9 --latency 4
  simsd plan --rate 5 --bandwidth 1.5 --flops 200 --memory 48 --target my/target --draft my/draft --json
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
        help="how many pairs a load needs",
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
    check = parser.add_argument_group("check")
    check.add_argument("--check", action="store_true", help="measure the shipped pair here instead, and compare")
    check.add_argument("--clients", default="1,2,4,8", metavar="N,M", help="clients at a time (default 1,2,4,8)")
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


def run(args: argparse.Namespace) -> int:
    if args.check:
        return _check(args)
    if args.rate is None:
        raise ConfigError("--rate is needed: requests/s of the whole server")
    pair, memory, most_running = _pair(args)
    found = plan(pair, _load(args), most_running, args.headroom, args.latency)
    facts = dataclasses.asdict(found) | {"memory": dataclasses.asdict(memory)}
    print(json.dumps(facts) if args.json else table(found, memory, _reserved(args)))
    return 0


def _load(args: argparse.Namespace) -> Load:
    return Load(args.rate, args.prompt_tokens, args.answer_tokens, args.cached_tokens)


def _reserved(args: argparse.Namespace) -> int:
    """Return the KV tokens that a request holds from admission to its end."""
    return int(args.prompt_tokens + (args.answer_tokens if args.max_tokens is None else args.max_tokens))


def _pair(args: argparse.Namespace) -> tuple[Pair, Memory, int]:
    """Return the pair, its memory, and how many requests it can hold at a time."""
    if args.max_running < 1:
        raise ConfigError(f"max_running must be at least 1; got {args.max_running}")
    if args.max_tokens is not None and args.max_tokens < args.answer_tokens:
        raise ConfigError(f"max_tokens must be at least answer_tokens, {args.answer_tokens}; got {args.max_tokens}")
    shape = _shape(args.target, "target")
    target = _roofline(args, shape, args.gpu)
    draft = None
    if args.draft != "none":
        draft = _roofline(args, _shape(args.draft, "draft"), args.draft_gpu or args.gpu)
    block_size = args.block_size or shape.block_size or 4
    gamma = (args.gamma or block_size) if draft else 0
    speculation = Speculation(block_size, gamma, (args.draft_steps or gamma) if draft else 0, args.acceptance)
    memory = Memory.of(target, draft, args.shared)
    most_running = min(args.max_running, memory.kv_tokens // _reserved(args))
    return Pair(target, draft, speculation, args.overhead_ms / 1e3, args.prefill_rows), memory, most_running


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


def _check(args: argparse.Namespace) -> int:
    need_measurements("plan --check")
    from simsd.messages.request import DecodeParams
    from simsd_bench.measure.capacity import check, markdown
    from simsd_bench.measure.pair import PairSpec

    clients = _clients(args.clients)
    params = DecodeParams(max_tokens=64, gamma=args.gamma, draft_steps=args.draft_steps or 1)
    report = check(PairSpec(device="cpu"), args.block_size or 4, params, clients, args.overhead_ms / 1e3, _note)
    print(json.dumps(report, default=dataclasses.asdict) if args.json else markdown(report))
    return 0


def _clients(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise ConfigError(f"--clients takes whole numbers from 1 with commas between; got {text!r}")
    return found


def _note(text: str) -> None:
    print(f"simsd plan: {text}", file=sys.stderr, flush=True)
