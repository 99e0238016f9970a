"""`simsd serve`: the whole server on this machine, until Ctrl-C."""

import argparse
import signal
import sys
import threading
from types import FrameType
from typing import Any

from deployments.args import ServeArgs
from simsd.checks import check_startup

EPILOG = """examples:
  simsd serve
  simsd serve --port 8080 --grpc-port 9000 --method exact
  simsd serve --target JetLM/SDAR-8B-Chat --draft JetLM/SDAR-1.7B-Chat --device cuda
"""
TRY_IT = """curl {url}/v1/chat/completions -d \
'{{"messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "serve",
        help="serve a pair over HTTP on this machine",
        description="Serve a draft and a target over HTTP on this machine, on a Ray of its own, until Ctrl-C.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default 8000)")
    parser.add_argument(
        "--grpc-port",
        type=int,
        default=0,
        help="port of the gRPC interface, on every address whatever --host says, as Ray Serve has it (default: none)",
    )
    parser.add_argument(
        "--metrics-port", type=int, default=0, help="port of Prometheus metrics, on loopback (default: a free one)"
    )
    parser.add_argument("--verbose", action="store_true", help="show the logs of all processes")
    group = parser.add_argument_group("application", "the same as build_app takes on a cluster")
    for name, field in ServeArgs.model_fields.items():
        default = "" if field.default is None or "(" in str(field.description) else f" (default {field.default})"
        group.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            default=argparse.SUPPRESS,
            metavar="X",
            help=f"{field.description}{default}".replace("%", "%%"),
        )


def run(args: argparse.Namespace) -> int:
    """Check, start, say `ready`, wait for a signal, stop all of it."""
    given = {name: value for name, value in vars(args).items() if name in ServeArgs.model_fields}
    serve_args = ServeArgs.model_validate(given)
    from deployments.local import check_port, with_local_gpus

    check_port(args.host, args.port)
    if args.grpc_port:
        check_port("0.0.0.0", args.grpc_port, "--grpc-port")
    if args.metrics_port:
        check_port("127.0.0.1", args.metrics_port, "--metrics-port")
    target = serve_args.worker_config("target")
    assert target is not None
    check_startup(serve_args.worker_config("draft"), target)
    return _serve(with_local_gpus(serve_args), args)


def _serve(serve_args: ServeArgs, args: argparse.Namespace) -> int:
    from deployments.local import StartError, base_url, deploy, local_ray, metrics_url

    _note(f"starting Ray Serve; target {serve_args.target}, draft {serve_args.draft}")
    with local_ray(serve_args.engines, args.verbose, args.metrics_port) as logs:
        from deployments.app import build_app

        try:
            signal.signal(signal.SIGTERM, _interrupt)  # after Ray, which sets a handler of its own
            deploy(build_app(serve_args), args.host, args.port, args.verbose, args.grpc_port)
            url = base_url(args.host, args.port)
            _note(f"metrics {metrics_url()}, logs {logs}/serve")
            lines = [f"ready {url}"] + ([f"ready grpc 127.0.0.1:{args.grpc_port}"] if args.grpc_port else [])
            print(*lines, TRY_IT.format(url=url), sep="\n", flush=True)
            threading.Event().wait()
        except StartError as error:
            raise StartError(f"{error} (logs: {logs})") from error
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # one is enough; a second must not leave processes behind
            _note("stopping")
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _note(text: str) -> None:
    print(f"simsd: {text}", file=sys.stderr, flush=True)
