"""What a user can say to the program: options of the commands, settings of the server, fields of HTTP bodies.

`python -m tests.unit.surface FILE` writes down what the code it is run from takes. `tests/records/surface-0.1.0.json`
was written from version 0.1.0; tests/unit/test_surface.py holds later versions against it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deployments.args import ServeArgs
from deployments.ingress.schemas import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from simsd.cli.main import build_parser

Facts = dict[str, Any]


def surface() -> dict[str, Facts]:
    """Name of each option, setting and field -> what it takes, and what it is where it is not given."""
    found = dict(_options(build_parser()[0], "simsd"))
    for model in (ServeArgs, ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest):
        schema = model.model_json_schema()
        for name, definition in {model.__name__: schema, **schema.get("$defs", {})}.items():
            properties = definition.get("properties", {}).items()
            found |= {f"{name}.{field}": _bare(facts) for field, facts in properties}
            found[name] = {"required": definition.get("required", []), "closed": not definition["additionalProperties"]}
    return found


def _options(parser: argparse.ArgumentParser, command: str) -> Iterator[tuple[str, Facts]]:
    for action in parser._actions:  # argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from _options(below, f"{command} {word}")
            continue
        facts = {
            "dest": action.dest,
            "nargs": action.nargs,
            "default": None if action.default in (None, argparse.SUPPRESS) else str(action.default),
            "kind": type(action).__name__.strip("_"),
        }
        allowed = {} if action.choices is None else {"choices": list(action.choices)}
        yield f"{command} {' '.join(action.option_strings) or action.dest}", facts | allowed


def _bare(schema: Facts) -> Facts:
    """What a value must be, without what is only said to a reader."""
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in sorted(surface().items())]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
