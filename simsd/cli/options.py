"""Options that commands share: how to decode (from DecodeParams itself), which models to load and how."""

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from simsd.config import SHIPPED, LoopConfig, WorkerConfig
from simsd.messages.request import DecodeParams

if TYPE_CHECKING:
    from simsd.loop.loop import Loop

DECODE_HELP = {
    "method": "how blocks are decoded",
    "max_tokens": "length of an answer at most, in tokens",
    "temperature": "0 is greedy",
    "top_p": "sample from the smallest set of tokens with this probability; 1 is off",
    "top_k": "sample from the k best tokens; 0 is off",
    "min_p": "leave out tokens below this part of the likeliest one's probability; 0 is off",
    "seed": "same seed, same answer; whatever else is in the batch",
    "stop": "end the answer before this text (up to 4 times)",
    "min_tokens": "nothing ends the answer before so many tokens",
    "logit_bias": "add this to the logit of a token id, -100 to 100 (may be given several times)",
    "ignore_eos": "go on to --max-tokens",
    "gamma": "tokens drafted a round, 1 to the block size; 0: the block size",
    "draft_steps": "draft forwards a round, 1 to gamma; 0: gamma",
    "layout": "simsd: one pass over paired rows, or branches, which removes its approximation",
    "fallback": "simsd: what fills a block after a rejection",
    "remasking": "which positions the target reveals in a step; with sequential, simsd drafts from the left, too",
    "steps": "denoising steps a block, 1 to the block size; 0: the block size",
    "threshold": "dynamic remasking: reveal all positions above this probability",
    "entropy_bound": "entropy remasking: reveal positions up to this sum of entropies, in nats",
    "row_budget": "exact: rows of one verification at most; 0: 8 x block size",
    "draft_top_k": "the draft samples from its k best tokens",
    "drafter": "who drafts: the draft model, or the target itself from its last forward",
    "routing": "s2d2: when a span is verified",
    "routing_score": "s2d2: how the chance of acceptance is guessed",
    "routing_cost": "s2d2: tokens that a verification must be expected to bring",
    "adaptive": "simsd and exact: gamma, draft steps and row budget are limits; each round takes what is fastest",
}


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """One option for each field of DecodeParams; an option that is not given leaves the field's default."""
    group = parser.add_argument_group("decoding")
    types = get_type_hints(DecodeParams)
    for field in dataclasses.fields(DecodeParams):
        kind = types[field.name]
        options: dict[str, Any] = {"default": None, "help": DECODE_HELP[field.name]}
        if kind is bool:
            options["action"] = "store_true"
        elif field.name == "logit_bias":
            options |= {"action": "append", "metavar": "ID:BIAS", "type": _bias}
        elif get_origin(kind) is tuple:
            options |= {"action": "append", "metavar": "TEXT"}
        elif get_origin(kind) is Literal:
            options["choices"] = get_args(kind)
        else:
            options |= {"type": kind, "metavar": "N" if kind is int else "X"}
        if kind is not bool and field.default not in (0, ()):
            options["help"] += f" (default {field.default})"
        group.add_argument(f"--{field.name.replace('_', '-')}", **options)


def decode_options(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of DecodeParams that were given on the command line."""
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(DecodeParams)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {name: value for name, value in given.items() if value is not None}


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition(":")
    return int(token), float(bias)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which pair, on what, how many requests at a time."""
    group = parser.add_argument_group("models")
    default = "(default: the shipped one)"
    for role in ("target", "draft"):
        group.add_argument(f"--{role}", metavar="DIR", default=SHIPPED, help=f"directory or hub name {default}")
    group.add_argument("--block-size", type=int, metavar="N", help="for both models (default: the checkpoint's)")
    group.add_argument("--mask-token-id", type=int, metavar="N", help="where the checkpoint does not tell")
    group.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
    group.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads (default: torch's choice)")
    runners = get_args(WorkerConfig.model_fields["runner"].annotation)
    how = "graph: static shapes, CUDA graphs on a GPU; compile: torch.compile, a minute before the first answer"
    group.add_argument("--runner", choices=runners, default="eager", help=how)
    group.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="processes that share the target")
    group.add_argument(
        "--overlap", action="store_true", help="the draft in a process of its own, which drafts ahead; halves --threads"
    )
    group.add_argument("--batch", type=int, default=16, metavar="N", help="requests decoded together (default 16)")


def load_loop(args: argparse.Namespace, needs_draft: bool) -> "Loop":
    """The pair of the command line, loaded and checked. Without a draft where no request needs one."""
    shared = {"block_size": args.block_size, "mask_token_id": args.mask_token_id, "dtype": args.dtype}
    overlap, threads = args.overlap and needs_draft, args.threads
    if overlap:
        threads = max(1, (threads or len(os.sched_getaffinity(0))) // 2)
    shared |= {"device": args.device, "threads": threads, "runner": args.runner}
    target = WorkerConfig(role="target", model=args.target, tensor_parallel=args.tensor_parallel, **shared)
    draft = WorkerConfig(role="draft", model=args.draft, **shared) if needs_draft else None
    config = LoopConfig(max_running=args.batch)

    from simsd.in_process import build_local  # imports torch, which the checks above can do without

    return build_local(target, draft, config, overlap)
