"""`simsd serve`: runs the whole server on this machine, until Ctrl-C."""

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from deployments.args import DECODE_DEFAULTS, ServeArgs
from simsd.cli.options import add_command, flag, kind_of, with_default
from simsd.config import LoopSettings, WorkerSettings
from simsd.errors import ConfigError
from simsd.models.description import check_startup

if TYPE_CHECKING:
    from deployments.serve_config import ServeConfig

HOST, PORT = "127.0.0.1", 8000
PROGRESS_S = 10.0
EPILOG = """examples:
  simsd serve
  simsd serve --port 8080 --grpc-port 9000 --method exact
  simsd serve --target JetLM/SDAR-8B-Chat --draft JetLM/SDAR-1.7B-Chat --device cuda
  simsd serve --config k8s/overlays/cpu-demo/serve-config.yaml --host 127.0.0.1
"""
TRY_IT = """curl {url}/v1/chat/completions -d \
'{{"messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "serve",
        help="serve a pair over HTTP on this machine",
        description="Serve a draft and a target over HTTP on this machine, on a Ray of its own, until Ctrl-C.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a Serve config file, as a RayService embeds it; has all settings of the application, and where to "
        "listen unless --host, --port or --grpc-port say so",
    )
    parser.add_argument("--host", help=f"address to listen on (default {HOST})")
    parser.add_argument("--port", type=int, help=f"port to listen on (default {PORT})")
    parser.add_argument(
        "--grpc-port",
        type=int,
        help="port of the gRPC interface, on every address whatever --host says, as Ray Serve has it (default: none)",
    )
    parser.add_argument(
        "--metrics-port", type=int, default=0, help="port of Prometheus metrics, on loopback (default: a free one)"
    )
    parser.add_argument("--verbose", action="store_true", help="show the logs of all processes")
    for title, names in _groups().items():
        group = parser.add_argument_group(title)
        for name in names:
            field = ServeArgs.model_fields[name]
            _, choices = kind_of(field)
            group.add_argument(
                flag(name),
                dest=name,
                default=argparse.SUPPRESS,
                metavar="{" + ",".join(choices) + "}" if choices else "X",
                help=with_default(str(field.description), field.default),
            )


def _groups() -> dict[str, list[str]]:
    """Return the names of all settings of the application, by topic. `build_app` takes the same ones on a cluster."""
    apart = {
        "how each model is run": list(WorkerSettings.model_fields),
        "how requests are decoded together": list(LoopSettings.model_fields),
        "how a request is decoded that does not say otherwise": list(DECODE_DEFAULTS),
    }
    known = {name for names in apart.values() for name in names}
    return {"application": [name for name in ServeArgs.model_fields if name not in known]} | apart


def run(args: argparse.Namespace) -> int:
    """Check the settings, start the server, print `ready`, wait for a signal, and stop everything."""
    given = {name: value for name, value in vars(args).items() if name in ServeArgs.model_fields}
    if args.config is not None:
        return _run_config(args, given)
    serve_args = ServeArgs.model_validate(given)
    args.host, args.port, args.grpc_port = args.host or HOST, _or(args.port, PORT), args.grpc_port or 0
    _check(args, serve_args)
    from deployments.local import deploy, with_local_gpus

    serve_args = with_local_gpus(serve_args)

    def start() -> None:
        from deployments.app import build_app

        deploy(build_app(serve_args), args.host, args.port, args.verbose, args.grpc_port)

    return _serve(serve_args, args, start)


def _run_config(args: argparse.Namespace, given: dict[str, Any]) -> int:
    """Serve what a Serve config file says. Only addresses may be given beside it, and they override the file's."""
    if given:
        options = ", ".join(map(flag, given))
        raise ConfigError(f"{options}: set it in {args.config} instead; --config takes no settings beside the file's")
    from deployments.local import GRPC_SERVICES
    from deployments.serve_config import deploy_config, read_serve_config

    config = read_serve_config(args.config)
    config = config.listening(args.host or config.host, _or(args.port, config.port))
    if args.grpc_port is not None:
        config = config.with_grpc(args.grpc_port or config.grpc_port, [GRPC_SERVICES] if args.grpc_port else [])
    args.host, args.port, args.grpc_port = config.host, config.port, config.grpc_port
    _check(args, config.args)
    _check_gpus(config)
    return _serve(config.args, args, lambda: deploy_config(config, args.verbose))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _check(args: argparse.Namespace, serve_args: ServeArgs) -> None:
    """Check before Ray starts what can be checked without it: the ports and the models."""
    from deployments.local import check_port

    check_port(args.host, args.port)
    if args.grpc_port:
        check_port("0.0.0.0", args.grpc_port, "--grpc-port")
    if args.metrics_port:
        check_port("127.0.0.1", args.metrics_port, "--metrics-port")
    target = serve_args.worker_config("target")
    assert target is not None
    check_startup(serve_args.worker_config("draft"), target)


def _check_gpus(config: "ServeConfig") -> None:
    """Refuse a file whose engines reserve more GPUs than this machine has: they would wait for them without end."""
    if not config.gpus:
        return
    import torch

    if config.gpus > (found := torch.cuda.device_count()):
        message = f"the engines reserve {config.gpus:g} GPUs, this machine has {found}; set draft_gpus and target_gpus"
        raise ConfigError(message)


def _serve(serve_args: ServeArgs, args: argparse.Namespace, start: Callable[[], None]) -> int:
    from deployments.local import StartError, base_url, local_ray, metrics_url

    # A shell without job control starts what it puts into the background with SIGINT ignored.
    signal.signal(signal.SIGINT, _interrupt)
    _note(f"starting Ray Serve; target {serve_args.target}, draft {serve_args.draft}")
    with contextlib.ExitStack() as running:
        with still("waiting for Ray to start"):
            logs = running.enter_context(local_ray(serve_args.engines, args.verbose, args.metrics_port))
        try:
            signal.signal(signal.SIGTERM, _interrupt)  # set after Ray's start, which sets a handler of its own
            with still("waiting for the engines and the server to start"):
                start()
            url = base_url(args.host, args.port)
            _note(f"metrics {metrics_url()}, logs {logs}/serve")
            lines = [f"ready {url}"] + ([f"ready grpc 127.0.0.1:{args.grpc_port}"] if args.grpc_port else [])
            print(*lines, TRY_IT.format(url=url), sep="\n", flush=True)
            threading.Event().wait()
        except StartError as error:
            raise StartError(f"{error} (logs: {logs})") from error
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # a second signal must not leave processes behind
            _note("stopping")
    return 0


@contextlib.contextmanager
def still(what: str, every_s: float = PROGRESS_S) -> Iterator[None]:
    """Say on stderr each `every_s` seconds, for as long as the context is open, that this is what we are doing."""
    done = threading.Event()

    def say() -> None:
        began = time.monotonic()
        while not done.wait(every_s):
            _note(f"still {what}, {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _note(text: str) -> None:
    print(f"simsd: {text}", file=sys.stderr, flush=True)
