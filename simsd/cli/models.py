"""`simsd models`: the shipped pair, or checkpoints by name."""

import argparse
import json
from pathlib import Path
from typing import Any

from simsd.cli.options import add_command
from simsd.config import SHIPPED
from simsd.models.config import load_model_config
from simsd.models.files import resolve_model

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
    asked = [(name, "target") for name in args.names] or [(SHIPPED, "target"), (SHIPPED, "draft")]
    for name, role in asked:
        facts = describe(name, resolve_model(name, role), role)
        if args.json:
            print(json.dumps(facts))
        else:
            print("\n".join(f"{key:<16} {_written(key, value)}" for key, value in facts.items()) + "\n")
    return 0


def describe(name: str, directory: Path, role: str) -> dict[str, Any]:
    """What a checkpoint's files say of it."""
    config = load_model_config(directory, "" if name == SHIPPED else name)
    weights = sorted(directory.glob("*.safetensors"))
    return {
        "model": f"{name} {role}" if name == SHIPPED else name,
        "directory": str(directory),
        "architecture": config.architecture,
        "parameters": config.parameters,
        "weights_bytes": sum(path.stat().st_size for path in weights),
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "context": config.max_position_embeddings,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "eos_token_ids": list(config.eos_token_ids),
    }


def _written(key: str, value: Any) -> str:
    if key == "parameters":
        return f"{value / 1e9:.2f}B" if value >= 1e9 else f"{value / 1e6:.2f}M"
    if key == "weights_bytes":
        return f"{value / 1e6:.1f} MB"
    return "unknown: give it as an argument" if value is None else str(value)
