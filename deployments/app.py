"""The application: ingress → coordinator → draft and target engines.

There are three ways to start it:
* `simsd serve --target DIR --draft DIR`
* `serve run deployments.app:build_app target=DIR draft=DIR`
* a Serve config file: `applications: [{import_path: deployments.app:build_app, args: {target: DIR, draft: DIR}}]`
"""

from collections.abc import Callable
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.deployment import Application

from deployments import tracing
from deployments.args import ServeArgs
from deployments.coordinator import Coordinator
from deployments.engine import ENGINE_CPUS, EngineServer, make_worker
from deployments.ingress.server import Ingress
from deployments.logs import logging_config
from simsd.config import WorkerConfig
from simsd.messages.worker import Role
from simsd.models.description import check_where_present

REPLICA_CPUS = 0.1
HEALTH_CHECK_S = 1.0
"""How often Serve checks each replica's health, and so how soon it replaces one that died."""
LEASE_ENDS_S = 5.0
"""How much longer than a coordinator its engines may take to stop. All are told to stop at the same time."""
LOAD_TO_SCALE = 0.75
"""Requests, running and queued, that a coordinator should have on average, as a share of `max_running`."""
LOOK_BACK_S = 11.0
"""Load is averaged over at least this long: Serve requires more than 10 s, its default interval for reporting load."""
SPARE_REQUESTS = 64
"""Calls that a coordinator accepts beyond its queue. It refuses them itself, with a clearer error than Serve's."""


def build_app(args: ServeArgs) -> Application:
    """Build the application for these arguments, which are the same from a command line, a config file and Python.

    A checkpoint or a setting that cannot work is refused here, before it replaces anything that runs. Serve may build
    the application on a machine that runs no model, such as the head of a KubeRay cluster. A model that is neither in a
    directory there nor in that machine's cache of the hub is left to its engine to check, and the log says so. Nothing
    is downloaded, and devices are not checked.
    """
    target = args.worker_config("target")
    assert target is not None
    check_where_present(args.worker_config("draft"), target)
    return compose(args, make_worker)


def compose(args: ServeArgs, worker_factory: Callable[[WorkerConfig], Any]) -> Application:
    """Build the application with a given `worker_factory`, which runs in the engines' processes."""
    tracing.enabled()  # raises here if tracing is on and a package for it is missing
    target = _engines(args, "target", worker_factory)
    draft = _engines(args, "draft", worker_factory) if args.draft else None
    coordinator = serve.deployment(
        name="Coordinator",
        **_replicas(args, LOAD_TO_SCALE * args.max_running),
        **_front(args),
        **_routing(args),
        max_ongoing_requests=args.max_running + args.max_queued + SPARE_REQUESTS,
    )(Coordinator)
    ingress = serve.deployment(
        name="Ingress",
        **_front(args),
        max_ongoing_requests=args.most_pairs * (args.max_running + args.max_queued + SPARE_REQUESTS),
    )(Ingress)
    return ingress.bind(args, coordinator.bind(args, target, draft))


def _front(args: ServeArgs) -> dict[str, Any]:
    """Return the options that ingress and coordinators share: few CPUs, quick replacement, time for streams to end."""
    return {
        "ray_actor_options": {"num_cpus": REPLICA_CPUS},
        "max_constructor_retry_count": 3,
        "health_check_period_s": HEALTH_CHECK_S,
        "graceful_shutdown_wait_loop_s": 0.1,
        "graceful_shutdown_timeout_s": args.drain_s,
        "logging_config": logging_config(),
    }


def _routing(args: ServeArgs) -> dict[str, Any]:
    """Return the option that routes by cached prefixes. Without a prefix cache, Serve's own router does."""
    if not args.prefix_cache:
        return {}
    return {
        "request_router_config": RequestRouterConfig(request_router_class="deployments.prefix_routing:PrefixRouter")
    }


def _replicas(args: ServeArgs, target_ongoing_requests: float) -> dict[str, Any]:
    """Return how many replicas there are: `pairs`, or between `pairs` and `max_pairs` by load.

    Coordinators scale on requests, and engines on leases, since a coordinator that waits for a lease counts as a queued
    request. So whole pairs come and go by one signal.
    """
    if args.most_pairs == args.pairs:
        return {"num_replicas": args.pairs}
    scaling = {
        "min_replicas": args.pairs,
        "max_replicas": args.max_pairs,
        "target_ongoing_requests": target_ongoing_requests,
        "upscale_delay_s": args.upscale_delay_s if target_ongoing_requests > 1 else 0.0,
        "downscale_delay_s": args.downscale_delay_s,
        "look_back_period_s": max(LOOK_BACK_S, args.upscale_delay_s),
    }
    return {"autoscaling_config": scaling}


def _engines(args: ServeArgs, role: Role, worker_factory: Callable[[WorkerConfig], Any]) -> Application:
    """Return the deployment of one role's engines.

    The first bundle of the placement group holds the replica and its engine with the GPU. Each further bundle holds one
    more rank of a tensor-parallel target.
    """
    gpus, config = args.gpus(role), args.worker_config(role)
    assert config is not None
    rank = {"CPU": ENGINE_CPUS} | ({"GPU": gpus} if gpus else {})
    bundles = [rank | {"CPU": REPLICA_CPUS + ENGINE_CPUS}, *[rank] * (config.tensor_parallel - 1)]
    deployment = serve.deployment(
        name=f"{role.capitalize()}Server",
        **_replicas(args, 1),
        ray_actor_options={"num_cpus": REPLICA_CPUS},
        placement_group_bundles=bundles,
        max_ongoing_requests=1,
        max_constructor_retry_count=3,
        health_check_period_s=HEALTH_CHECK_S,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=args.drain_s + LEASE_ENDS_S,
    )(EngineServer)
    return deployment.bind(config, gpus, args.engines, args.forward_timeout_s, worker_factory)
