"""Options that commands share: how to decode (derived from `DecodeParams`), which models to load, and how."""

import argparse
import importlib.util
import os
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from simsd.config import SHIPPED, LoopConfig, WorkerConfig
from simsd.errors import SimSDError
from simsd.messages.options import options_of
from simsd.messages.presets import PRESET_HELP, PRESETS, on_top_of
from simsd.messages.request import DecodeParams

if TYPE_CHECKING:
    from simsd.loop.loop import Loop

METAVARS = {int: "N", float: "X", str: "NAME"}
WORKER_OPTIONS = ("block_size", "mask_token_id", "dtype", "device", "threads", "runner", "tensor_parallel")
"""Worker settings, for both models, that these commands offer; `simsd serve` offers all of them."""


def add_command(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    help: str,
    description: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """Add the parser of a subcommand. Its description and examples keep their line breaks."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def need_measurements(command: str) -> None:
    """Raise a `SimSDError` that says what to install, if the package of measurements is missing."""
    if importlib.util.find_spec("simsd_bench") is None:
        raise SimSDError(
            f"simsd {command} needs the package simsd_bench, which is not installed here; it comes with "
            "pip install 'simsd-serve[bench]', and stands beside simsd in the repository"
        )


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each option of `DecodeParams`, and --preset. One that is not given keeps its default."""
    group = parser.add_argument_group("decoding")
    group.add_argument("--preset", choices=tuple(PRESETS), help=PRESET_HELP)
    for option in options_of(DecodeParams).values():
        how: dict[str, Any] = {"default": None, "help": with_default(option.help, option.default)}
        if option.kind is bool:
            how["action"] = "store_true"
        elif option.name == "logit_bias":
            how |= {"action": "append", "metavar": "ID:BIAS", "type": _bias}
        elif get_origin(option.kind) is tuple:
            how |= {"action": "append", "metavar": "TEXT"}
        elif option.choices:
            how["choices"] = option.choices
        else:
            how |= {"type": option.kind, "metavar": METAVARS[option.kind]}
        group.add_argument(flag(option.name), **how)


def decode_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `DecodeParams` that were given on the command line, and `preset` if it was."""
    given = {name: getattr(args, name) for name in ("preset", *options_of(DecodeParams))}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {name: value for name, value in given.items() if value is not None}


def decode_params(args: argparse.Namespace) -> DecodeParams:
    """Return the options of `DecodeParams` that the command line asks for."""
    return DecodeParams(**on_top_of({}, decode_options(args)))


def with_default(text: str, default: Any) -> str:
    """Return help for argparse, with the default unless it is None, 0 or empty: the text says what these stand for."""
    return (f"{text} (default {default})" if default else text).replace("%", "%%")


def flag(name: str) -> str:
    """Return the command line's spelling of a setting."""
    return f"--{name.replace('_', '-')}"


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition(":")
    return int(token), float(bias)


def kind_of(field: FieldInfo) -> tuple[Any, tuple[str, ...]]:
    """Return (type, allowed values) of a setting, None apart. Only a `Literal` has a list of allowed values."""
    annotation = field.annotation
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (kind for kind in get_args(annotation) if kind is not NoneType)
    return (str, get_args(annotation)) if get_origin(annotation) is Literal else (annotation, ())


def add_worker_option(parser: argparse._ActionsContainer, name: str) -> None:
    """Add the option of one worker setting, with its help, allowed values and default."""
    field = WorkerConfig.model_fields[name]
    kind, choices = kind_of(field)
    how: dict[str, Any] = {"choices": choices} if choices else {"metavar": METAVARS[kind]}
    parser.add_argument(
        flag(name), type=kind, default=field.default, help=with_default(str(field.description), field.default), **how
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the pair, its device, and how many requests are decoded together."""
    group = parser.add_argument_group("models")
    default = "(default: the shipped one)"
    for role in ("target", "draft"):
        group.add_argument(f"--{role}", metavar="DIR", default=SHIPPED, help=f"directory or hub name {default}")
    for name in WORKER_OPTIONS:
        add_worker_option(group, name)
    group.add_argument(
        "--overlap", action="store_true", help="the draft in a process of its own, which drafts ahead; halves --threads"
    )
    most = LoopConfig.model_fields["max_running"].default
    group.add_argument(
        "--batch", type=int, default=most, metavar="N", help=with_default("requests decoded together", most)
    )


def load_loop(args: argparse.Namespace, needs_draft: bool) -> "Loop":
    """Load and check the pair that the command line names. No draft is loaded where no request needs one."""
    shared = {name: getattr(args, name) for name in WORKER_OPTIONS}
    overlap = args.overlap and needs_draft
    if overlap:
        shared["threads"] = max(1, (args.threads or len(os.sched_getaffinity(0))) // 2)
    target = WorkerConfig(role="target", model=args.target, **shared)
    draft = WorkerConfig(role="draft", model=args.draft, **shared | {"tensor_parallel": 1}) if needs_draft else None
    config = LoopConfig(max_running=args.batch)

    from simsd.in_process import build_local  # imports torch, which the checks above do not need

    return build_local(target, draft, config, overlap)
