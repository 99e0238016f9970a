"""A whole cluster on this machine: a private Ray, the application on it, and nothing left behind.

Used by `simsd serve` and the tests. On a real cluster Ray is there already and Serve takes `build_app` by name.
"""

import contextlib
import errno
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deployments.args import ServeArgs
from deployments.processes import nothing_left_behind
from simsd.errors import ConfigError, SimSDError

if TYPE_CHECKING:
    from ray.serve.deployment import Application

logger = logging.getLogger(__name__)

APP_NAME = "simsd"
OBJECT_STORE_BYTES = 128 * 2**20
"""What travels between engines is some kilobytes a round."""
MAX_TMPDIR_CHARS = 30
STOP_GRACE_S = 2.0
SHUTDOWN_S = 20.0
"""Ray needs some five seconds to stop; on a busy machine it was seen not to end within a minute."""
START_ATTEMPTS = 2
START_LIMIT_S = 180
"""How long a part of Ray may take to start before the start counts as failed. Ray's own limits are 5 to 60 s, which a
machine with more processes ready to run than cores does not always meet."""
READY_TIMEOUT_S = float(START_LIMIT_S)
POLL_S = 0.5
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A cluster of one user on one machine, without a token file in the home directory. SECURITY.md has what listens.
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # Ray starts its workers at nice 15, behind everything else on the machine; ours answer requests.
    "RAY_worker_niceness": "0",
    # On SIGTERM Ray would first drain its node, for clients that have another node to go to.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    # No record of every call in Ray's GCS: nobody reads it here, and it grows by some megabytes a minute.
    "RAY_task_events_report_interval_ms": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # What waits for whom at the start: the driver for the GCS to publish its port, then for the node to register; a
    # client for a connection to the GCS; the node for its agents, and for a worker process; Serve for its proxy.
    "RAY_gcs_server_port_wait_time_s": str(START_LIMIT_S),
    "RAY_raylet_start_wait_time_s": str(START_LIMIT_S),
    "RAY_gcs_rpc_server_connect_timeout_s": str(START_LIMIT_S),
    "RAY_agent_register_timeout_ms": str(1000 * START_LIMIT_S),
    "RAY_worker_register_timeout_seconds": str(START_LIMIT_S),
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(START_LIMIT_S),
    # From the proxy to the ingress by gRPC, not by actor calls: less of both processes for each piece of a stream.
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    # How often load is reported to what adds pairs; by itself each 10 s.
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    # Ray's own limit is 2 GB. The ingress has the limit that counts, max_body_bytes; this one protects the proxy.
    "RAY_SERVE_GRPC_MAX_MESSAGE_SIZE": str(64 * 2**20),
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(64 * 2**20),
}
GRPC_SERVICES = "deployments.ingress.grpc.add_services"
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where we ourselves reach a server that listens on every address."""


class StartError(SimSDError):
    """Ray, or the application on it, did not start."""


def base_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_port(host: str, port: int, option: str = "--port") -> None:
    """`ConfigError` if nothing can listen there; `option` is what to choose another by."""
    if not 0 < port < 65536:
        raise ConfigError(f"port must be between 1 and 65535; got {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"host {host!r}, port {port}: {error}") from error
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"port in use: something listens on {host}:{port}; choose another {option}"
                raise ConfigError(message) from error
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error


@contextlib.contextmanager
def local_ray(engines: int, verbose: bool = False, metrics_port: int = 0) -> Iterator[Path]:
    """Run a Ray of our own while the context is open; gives its log directory.

    engines: how many engine processes will run, so that Ray counts enough CPUs for them. metrics_port: where metrics
    can be scraped, on every address (0: Ray takes a free port, see `metrics_url`). The session has a directory of its
    own, which is removed at the end unless something went wrong.
    """
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    import ray

    # Ray's sockets live below it, and a socket's path may have 107 bytes: too few for a long TMPDIR.
    parent = tempfile.gettempdir()
    directory = Path(tempfile.mkdtemp(prefix="simsd-", dir=parent if len(parent) <= MAX_TMPDIR_CHARS else "/tmp"))
    keep_logs = False
    try:
        with nothing_left_behind(STOP_GRACE_S) as kill:
            try:
                _start_ray(ray, engines, directory, verbose, metrics_port)
                yield directory / "session_latest" / "logs"
            finally:
                hung = threading.Timer(SHUTDOWN_S, kill)
                hung.start()
                ray.shutdown()
                hung.cancel()
    except Exception:
        keep_logs = True
        raise
    finally:
        if not keep_logs:
            shutil.rmtree(directory, ignore_errors=True)


def _start_ray(ray: ModuleType, engines: int, directory: Path, verbose: bool, metrics_port: int) -> None:
    """Start Ray; where that fails, try once more, because what the first attempt has read from disk is cached then."""
    for attempt in range(START_ATTEMPTS):
        try:
            ray.init(
                address="local",
                num_cpus=max(len(os.sched_getaffinity(0)), 1 + engines),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                _temp_dir=str(directory),
                _metrics_export_port=metrics_port or None,
                log_to_driver=verbose,
                logging_level=logging.INFO if verbose else logging.ERROR,
            )
            return
        except Exception as error:  # Ray raises bare ones
            ray.shutdown()
            if attempt + 1 == START_ATTEMPTS:
                raise StartError(f"Ray did not start: {error} (logs: {directory})") from error
            logger.warning("simsd: Ray did not start, trying once more: %s", error)


def metrics_url() -> str:
    """Where the running local Ray's metrics can be scraped."""
    import ray

    return f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics"


def deploy(app: "Application", host: str, port: int, verbose: bool = False, grpc_port: int = 0) -> None:
    """Start Serve on the running Ray and the application on it; returns when a request would be answered.

    grpc_port: where the gRPC interface listens, on every address: Serve's proxy takes no other (0: no gRPC).
    """
    from ray import serve
    from ray.serve.config import HTTPOptions, gRPCOptions

    services = [GRPC_SERVICES] if grpc_port else []
    start_serve(
        verbose,
        # Were there more nodes on this machine, each with a proxy, they would share the port, and cut their part of the
        # connections when they go.
        proxy_location="HeadOnly",
        http_options=HTTPOptions(host=host, port=port),
        grpc_options=gRPCOptions(port=grpc_port, grpc_servicer_functions=services),
    )
    try:
        with late_proxies():
            serve.run(app, name=APP_NAME, route_prefix="/")
    except RuntimeError as error:
        raise StartError(str(error)) from error
    wait_for_answer(host, port, grpc_port)


def start_serve(verbose: bool, **options: Any) -> None:
    """Start Serve on the running Ray with `serve.start`'s options."""
    from ray import serve

    if not verbose:
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with late_proxies():
        serve.start(**options)


def late_proxies() -> contextlib.AbstractContextManager[None]:
    """Serve raises TimeoutError 60 s after it has started a proxy that is not up; `wait_for_answer` waits longer."""
    return contextlib.suppress(TimeoutError)


def wait_for_answer(host: str, port: int, grpc_port: int, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Return when HTTP, and gRPC unless its port is 0, say that the server is healthy.

    Raises `StartError` when HTTP does not say so within `timeout_s`.
    """
    url = f"{base_url(LOOPBACK.get(host, host), port)}/health"
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=timeout_s):
                break
        except OSError as error:  # refused, timed out, or a status that is an error
            if time.monotonic() > deadline:
                raise StartError(f"no answer from {url} within {timeout_s:g} s: {error}") from error
            time.sleep(POLL_S)
    if grpc_port:
        _check_grpc(f"127.0.0.1:{grpc_port}")


def _check_grpc(address: str) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=READY_TIMEOUT_S, wait_for_ready=True)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def with_local_gpus(args: ServeArgs) -> ServeArgs:
    """The same arguments, with this machine's GPUs shared out where the arguments leave it open."""
    if args.device == "cpu" or (args.draft_gpus is not None and args.target_gpus is not None):
        return args
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    share = min(1.0, int(100 * count / args.engines) / 100)
    given = {name: getattr(args, name) for name in ("draft_gpus", "target_gpus")}
    return args.model_copy(update={name: share if value is None else value for name, value in given.items()})
