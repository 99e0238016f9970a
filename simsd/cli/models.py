"""`simsd models`: describes the shipped pair, or the checkpoints that are named."""

import argparse
import json
from pathlib import Path
from typing import Any

from simsd.cli.options import add_command
from simsd.config import SHIPPED, WorkerConfig
from simsd.messages.worker import Role
from simsd.models.checkpoint import check_weights, layout_of, load_model_config
from simsd.models.description import describe
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer

EPILOG = """examples:
  simsd models
  simsd models JetLM/SDAR-1.7B-Chat my/checkpoint --json
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "models",
        help="describe the shipped pair, or other checkpoints",
        description="Describe the shipped pair, or the checkpoints given (directories or hub names).",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="DIR", help="directory or hub name (default: the shipped pair)")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each")


def run(args: argparse.Namespace) -> int:
    asked: list[tuple[str, Role]] = [(name, "target") for name in args.names]
    for name, role in asked or [(SHIPPED, "target"), (SHIPPED, "draft")]:
        facts = facts_of(name, resolve_model(name, role), role)
        if args.json:
            print(json.dumps(facts))
        else:
            print("\n".join(f"{key:<16} {_written(key, value)}" for key, value in facts.items()) + "\n")
    return 0


def facts_of(name: str, directory: Path, role: Role) -> dict[str, Any]:
    """Return what a checkpoint's files say about it; raises `CheckpointError` if a server could not use them.

    A block size or mask token that the files do not tell is None; a server must then be given it.
    """
    shape = load_model_config(directory, name)
    weights = check_weights(directory, layout_of(shape))
    context, eos_token_ids = shape.max_position_embeddings, shape.eos_token_ids
    if shape.block_size is None or shape.mask_token_id is None:
        Tokenizer.load(directory)
    else:
        info = describe(WorkerConfig(role=role, model=name), directory)
        context, eos_token_ids = info.max_model_len, info.eos_token_ids
    return {
        "model": f"{name} {role}" if name == SHIPPED else name,
        "directory": str(directory),
        "architecture": shape.architecture,
        "parameters": shape.parameters,
        "weights_bytes": sum(path.stat().st_size for path in {stored.path for stored in weights.values()}),
        "layers": shape.num_hidden_layers,
        "hidden_size": shape.hidden_size,
        "vocab_size": shape.vocab_size,
        "context": context,
        "block_size": shape.block_size,
        "mask_token_id": shape.mask_token_id,
        "eos_token_ids": list(eos_token_ids),
    }


def _written(key: str, value: Any) -> str:
    if key == "parameters":
        return f"{value / 1e9:.2f}B" if value >= 1e9 else f"{value / 1e6:.2f}M"
    if key == "weights_bytes":
        return f"{value / 1e6:.1f} MB"
    return "unknown: give it as an argument" if value is None else str(value)
