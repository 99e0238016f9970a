"""`simsd`: finds the subcommands, runs one, and shows its errors in one line."""

import argparse
import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType
from typing import NoReturn

from pydantic import ValidationError

from simsd import __version__
from simsd.errors import ConfigError, RequestError

COMMANDS = ("generate", "chat", "eval", "serve", "models", "plan", "bench")
"""Each command is the module simsd.cli.NAME and is offered if that exists. Torch and Ray are imported only by `run`."""

EXAMPLES = """examples:
  simsd serve                                              serve the shipped pair on this machine
  simsd generate "What is the capital of France?" --stats  answer once, without a server
  simsd eval --families math,code --n 100 --method exact   accuracy with its interval
  simsd COMMAND --help                                     all options of a command
"""

BAD_REQUEST, FAILURE, INTERRUPTED = 2, 1, 130


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, with a pointer to --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_REQUEST, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser() -> tuple[Parser, dict[str, ModuleType]]:
    """Return the parser, and the module behind each subcommand."""
    parser = Parser(
        prog="simsd",
        description="SimSD Serve: speculative decoding and serving for block-diffusion language models.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"simsd {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    modules = {}
    for command in COMMANDS:
        name = f"simsd.cli.{command}"
        if importlib.util.find_spec(name) is not None:
            modules[command] = importlib.import_module(name)
            modules[command].add_parser(subparsers)
    for subparser in subparsers.choices.values():
        subparser.add_argument("--debug", action="store_true", help="show where an error came from")
    return parser, modules


def explain(error: BaseException) -> tuple[str, int]:
    """Return one line about the error, and the exit code: 2 if the input is at fault, else 1."""
    while isinstance(error, BaseExceptionGroup):  # of concurrent requests, the first failure is reported
        error = error.exceptions[0]
    code = BAD_REQUEST if isinstance(error, RequestError | ConfigError | ValidationError) else FAILURE
    if isinstance(error, ValidationError):
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}, got {e['input']!r}" for e in error.errors())
        return found, code
    message = " ".join(str(error).split())
    if type(error).__module__.startswith("simsd.") or isinstance(error, OSError):
        return message, code
    return f"{type(error).__name__}: {message} (--debug shows where)", code


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser, modules = build_parser()
    args = parser.parse_args(argv)
    try:
        code: int = modules[args.command].run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output is gone (`| head`). Python's own flush at exit would raise the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        message, code = explain(error)
        print(f"simsd {args.command}: error: {message}", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(main())
