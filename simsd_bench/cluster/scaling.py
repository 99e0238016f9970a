"""Measures how pairs come and go with the load, on several nodes, one of which is lost.

    python -m simsd_bench.cluster.scaling --nodes 3

The nodes are raylets on this machine, each with pretended GPUs for the two engines of one pair. Under load, pairs are
added until every node has one. Then a node is killed, and another joins. When all clients but one leave, pairs are
taken away. At last arguments are changed under three clients, as KubeRay or `serve deploy` changes them. Every request
has to end in the right text, or in a declared error that the lost node excuses. If one does not, the exit code is 1;
the report is written in any case.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve

from deployments.local import APP_NAME
from deployments.serve_config import BUILDER, ServeConfig, deploy_config, parse_serve_config
from simsd.worker.ports import free_port
from simsd_bench.cluster.components import Nodes, several_nodes
from simsd_bench.cluster.load import Case, Ended, ask, bodies, excused, with_answers
from simsd_bench.cluster.soak import GRACE_S, note
from simsd_bench.processes import processes

PAIR = ("Coordinator", "TargetServer", "DraftServer")
REPLACED = ("ingress replica", "coordinator replica")
"""Processes that have the changed arguments, and so are replaced."""
POLL_S = 0.2
UPSCALE_DELAY_S, DOWNSCALE_DELAY_S = 1.0, 5.0
STEP_TIMEOUT_S = 240.0
AFTER_S = 5.0
"""How long the load goes on in each state, so that new pairs are used."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the cluster: what it was, the seconds that it took, and the pairs afterwards."""

    what: str
    seconds: float
    pairs: int


@dataclass
class Run:
    steps: list[Step] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def pairs() -> int:
    """Return the number of whole pairs that run."""
    deployments = serve.status().applications[APP_NAME].deployments
    return min(deployments[name].replica_states.get("RUNNING", 0) for name in PAIR)


async def until(condition: Callable[[], bool], what: str) -> float:
    """Wait until the condition holds, and return the seconds; raises `TimeoutError`, which says what did not happen."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110 (Serve gives no event for it)
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise TimeoutError(f"{what}: not within {STEP_TIMEOUT_S:g} s") from error
    return time.monotonic() - began


class Clients:
    """A number of clients that can be changed; each sends requests without a pause."""

    def __init__(self, client: httpx.AsyncClient, cases: list[Case], ended: list[Ended]) -> None:
        self._client, self._cases, self._ended = client, cases, ended
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = 0

    async def become(self, count: int) -> None:
        """Change the number of clients. Those that leave finish their requests."""
        self._wanted = count
        for index in range(len(self._tasks), count):
            self._tasks.append(asyncio.create_task(self._ask(index)))
        left, self._tasks = self._tasks[count:], self._tasks[:count]
        await asyncio.gather(*left)

    async def _ask(self, index: int) -> None:
        rng = random.Random(index)
        while index < self._wanted:
            ended = await ask(self._client, rng.choice(self._cases), stream=rng.random() < 0.5)
            self._ended.append(ended)
            if ended.outcome != "answered":
                await asyncio.sleep(1)


async def scale(config: ServeConfig, changed: ServeConfig, nodes: Nodes, most_clients: int) -> Run:
    """Run all steps against a running server on several nodes."""
    url = f"http://{config.host}:{config.port}"
    run = Run()
    losses: list[tuple[float, float, str]] = []
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits(max_connections=None)) as client:
        cases = await with_answers(client, bodies(random.Random(0))[2::4])
        clients = Clients(client, cases, run.ended)

        async def step(what: str, wanted: int) -> None:
            run.steps.append(Step(what, await until(lambda: pairs() == wanted, f"{what}, {wanted} pairs"), wanted))
            note(f"{what}: {wanted} pairs after {run.steps[-1].seconds:.1f} s")
            await asyncio.sleep(AFTER_S)

        try:
            await clients.become(1)
            await step("one client", 1)
            await clients.become(most_clients)
            for count in range(2, len(nodes.all) + 1):
                await step(f"{most_clients} clients", count)
            if len(nodes.all) > 1:
                began = time.monotonic()
                victim, left = cheapest_loss([str(node.node_id) for node in nodes.all[1:]])
                await asyncio.to_thread(nodes.kill, victim)
                await step("a node killed", left)
                losses.append((began, time.monotonic(), "node"))
                nodes.add()  # not in a thread: Ray sets signal handlers there, which only the main thread may
                await step("a node joined", len(nodes.all))
            await asyncio.gather(clients.become(1), step("one client left", 1))
            await clients.become(3)
            before = {process.pid for process in processes() if process.name in REPLACED}
            began = time.monotonic()
            await asyncio.to_thread(deploy_config, changed)
            gone = await until(lambda: not before & {process.pid for process in processes()}, "old replicas gone")
            run.steps.append(Step("arguments changed", time.monotonic() - began, pairs()))
            note(f"arguments changed: old replicas gone {gone:.1f} s after the new ones answered")
            await asyncio.sleep(AFTER_S)
        except TimeoutError as error:
            run.broken.append(str(error))
        await clients.become(0)
    run.ended = [excused(ended, losses, GRACE_S) for ended in run.ended]
    wrong = [ended for ended in run.ended if ended.outcome == "wrong"]
    if wrong:
        run.broken.append(f"{len(wrong)} requests ended wrongly, the first: {wrong[0].detail}")
    return run


def replicas_by_node(deployment: str) -> Counter[str]:
    """Return how many replicas of a deployment run on each node, by the node's id."""
    actors: dict[str, Any] = ray._private.state.actors(actor_state_name="ALIVE")
    return Counter(
        str(actor["Address"]["NodeID"])
        for actor in actors.values()
        if actor["Name"].startswith(f"SERVE_REPLICA::{APP_NAME}#{deployment}#")
    )


def cheapest_loss(nodes: list[str]) -> tuple[str, int]:
    """Return the node, other than the ingress's, whose loss leaves the most whole pairs, and their number.

    Serve places engines one by one, so a node may have drafts alone. What is left then lacks drafts, and has no GPU to
    start them on before another node joins.
    """
    ingress = replicas_by_node("Ingress")
    engines = [replicas_by_node(name) for name in ("TargetServer", "DraftServer")]
    left = {node: min(role.total() - role[node] for role in engines) for node in nodes if not ingress[node]}
    victim = max(left, key=lambda node: left[node])
    return victim, left[victim]


def report(run: Run, command: str) -> str:
    """Return the text of docs/results/scaling.md."""
    outcomes = Counter(ended.outcome for ended in run.ended)
    verdict = "kept" if not run.broken else "**broken**: " + "; ".join(run.broken)
    lines = ["# Scaling", "", f"`{command}`", "", f"Promises {verdict}.", ""]
    lines += ["| what happened | pairs | after, s |", "|---|---|---|"]
    lines += [f"| {step.what} | {step.pairs} | {step.seconds:.1f} |" for step in run.steps]
    lines += ["", "| requests | |", "|---|---|", *(f"| {name} | {count} |" for name, count in sorted(outcomes.items()))]
    return "\n".join(lines) + "\n\n" + EXPLANATION


EXPLANATION = (
    "Written by the command above. All nodes are raylets on the machine that it ran on, each with pretended GPUs for "
    "one draft and one target; so an\nadded pair adds no speed here, and starts beside others that decode.\n\n"
    "* *after*: from the change until so many coordinators, targets and drafts ran, as Serve says. Load counts for "
    f"{UPSCALE_DELAY_S:g} s before a pair is added,\n  and has to be gone for {DOWNSCALE_DELAY_S:g} s (and from the "
    "average over 11 s) before one is taken away; then processes start, or end their requests.\n"
    "* Load goes on for some seconds in each state, and while pairs are taken away one client goes on.\n"
    "* *arguments changed*: until the new ingress and coordinator answered, and the old ones had ended their requests "
    "and were gone.\n"
    "* *answered*: with the text that the same request had got before, undisturbed, whole or streamed. *unavailable*: "
    "503, or the error event of a stream;\n  anything but an answer counts as wrong unless the lost node excuses it.\n"
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--results", type=Path, default=Path("docs/results"), help="where scaling.md goes")
    return parser.parse_args()


def measure(count: int, clients: int) -> Run:
    """Run all steps on a cluster of `count` nodes, which is gone afterwards."""
    args = {
        "served_model_name": "tiny",
        "max_pairs": count,
        "max_running": 2,
        "max_queued": 64,
        "threads": 1,
        "draft_gpus": 1,
        "target_gpus": 1,
        "upscale_delay_s": UPSCALE_DELAY_S,
        "downscale_delay_s": DOWNSCALE_DELAY_S,
    }
    listening = {"host": "127.0.0.1", "port": free_port()}
    config, changed = (_config(args | change, listening) for change in ({}, {"max_tokens": 99}))
    with several_nodes(count, cpus=4, gpus=2) as nodes:
        deploy_config(config)
        return asyncio.run(scale(config, changed, nodes, clients))


def _config(args: dict[str, Any], listening: dict[str, Any]) -> ServeConfig:
    """Return the config. It has one proxy only: several on one machine would share a port and cut its connections."""
    application = {"name": APP_NAME, "route_prefix": "/", "import_path": BUILDER, "args": args}
    config = {"proxy_location": "HeadOnly", "http_options": listening, "applications": [application]}
    return parse_serve_config(json.dumps(config))


def main() -> int:
    options = parse()
    run = measure(options.nodes, options.clients)
    text = report(run, f"python -m simsd_bench.cluster.scaling --nodes {options.nodes} --clients {options.clients}")
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "scaling.md").write_text(text)
    print(text)
    return 1 if run.broken else 0


if __name__ == "__main__":
    sys.exit(main())
