"""Measures a server under every kind of load while its parts are killed one by one.

    python -m simsd_bench.cluster.soak --minutes 10 --clients 8 --kill-every 60

Every request has to end in the right text, or in an error that the API declares and that a loss at that time excuses.
Afterwards no pages, actors or objects may be left, and memory and open files must not have grown. If one of these is
broken, the exit code is 1; the report is written in any case.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deployments.args import ServeArgs
from simsd.worker.ports import free_port
from simsd_bench.cluster.components import (
    Component,
    Stored,
    engines,
    kill,
    live_actors,
    objects,
    objects_down_to,
)
from simsd_bench.cluster.load import LEAVE_S, Case, Ended, Load, ask, bodies, excused, with_answers
from simsd_bench.processes import Process, processes

COMPONENTS: tuple[Component, ...] = ("draft", "target", "coordinator", "ingress")
SAMPLE_S = 10.0
PROBE_S = 0.2
SETTLE_S = 60.0
"""How long pages and objects may take to be freed after the end."""
GRACE_S = 2.0
"""How long after the recovery from a loss an error may still come of it."""
MAX_RSS_GROWTH, RSS_SLACK_MB = 1.15, 16.0
FD_SLACK = 16
ARGS = ServeArgs(served_model_name="tiny", max_running=6, max_queued=4)
"""With these settings, eight clients, some of which ask for two answers, sometimes find the queue full."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A killed component. Times are of `time.monotonic`; it has recovered when a request to all parts is answered."""

    component: Component
    pid: int
    at: float
    recovered_at: float


@dataclass
class Run:
    """All observations of one run."""

    ended: list[Ended] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    samples: list[list[Process]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    stored: tuple[Stored, Stored] = (Stored(0, 0), Stored(0, 0))

    def promise(self, kept: bool, otherwise: str) -> None:
        if not kept:
            self.broken.append(otherwise)


async def killer(run: Run, client: httpx.AsyncClient, probe: Case, every_s: float, until: float, seed: int) -> None:
    """Kill a component every `every_s` seconds, in random order; each is killed once before one is killed again."""
    rng = random.Random(f"kill {seed}")
    drawn: list[Component] = []
    due = time.monotonic() + every_s
    while due < until:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        drawn = drawn or rng.sample(COMPONENTS, len(COMPONENTS))
        component = drawn.pop()
        pid = await asyncio.to_thread(kill, component)
        at = time.monotonic()
        note(f"killed the {component} (process {pid})")
        recovered_at = await answered(client, probe)
        run.kills.append(Kill(component, pid, at, recovered_at))
        note(f"answered again after {recovered_at - at:.1f} s")
        due += every_s


async def answered(client: httpx.AsyncClient, probe: Case) -> float:
    """Send the request until its answer is right, and return when that was."""
    while True:
        ended = await ask(client, probe, stream=False)
        if ended.outcome == "answered":
            return ended.ended
        await asyncio.sleep(PROBE_S)


async def sampler(run: Run) -> None:
    while True:
        run.samples.append(await asyncio.to_thread(processes))
        await asyncio.sleep(SAMPLE_S)


async def soak(url: str, options: argparse.Namespace) -> Run:
    """Run load and kills against a running server, and check the end."""
    run = Run()
    limits = httpx.Limits(max_connections=4 * options.clients)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        asked = bodies(random.Random(options.seed))
        note(f"{len(asked)} requests without disturbance, for their texts")
        cases = await with_answers(client, asked)
        probe = next(case for case in cases if case.body["simsd"] == {"method": "simsd"})
        await settled(client)
        before = live_actors(), objects()
        until = time.monotonic() + 60 * options.minutes
        note(f"{options.clients} clients for {options.minutes:g} minutes")
        background = [
            asyncio.create_task(sampler(run)),
            asyncio.create_task(killer(run, client, probe, options.kill_every, until, options.seed)),
        ]
        run.ended = await Load(client, cases, options.seed).run(options.clients, until)
        await background[1]
        background[0].cancel()
        with suppress(asyncio.CancelledError):
            await background[0]
        await check_end(run, client, cases, *before)
    windows = [(one.at, one.recovered_at, str(one.component)) for one in run.kills]
    run.ended = [excused(ended, windows, GRACE_S) for ended in run.ended]
    wrong = [ended for ended in run.ended if ended.outcome == "wrong"]
    run.promise(not wrong, f"{len(wrong)} requests ended wrongly, the first: {wrong[0].detail if wrong else ''}")
    return run


async def check_end(
    run: Run, client: httpx.AsyncClient, cases: list[Case], actors: dict[str, int], stored: Stored
) -> None:
    """Check that nothing is left of the load, and that every answer is the same as before."""
    run.promise(await settled(client), f"pages or requests are held {SETTLE_S:g} s after the last client left")
    for case in cases:
        run.promise((await ask(client, case, stream=False)).outcome == "answered", f"after the end: {case.body}")
    await settled(client)
    left = live_actors()
    run.promise(left == actors, f"actors before {actors}, after {left}")
    now = await asyncio.to_thread(objects_down_to, stored.count, SETTLE_S)
    run.promise(now.count <= stored.count, f"object store before {stored}, after {now}")
    run.stored = stored, now
    for name, (first, last) in drift(run, "rss_mb").items():
        run.promise(last <= MAX_RSS_GROWTH * first + RSS_SLACK_MB, f"{name}: {first:.0f} MB grew to {last:.0f} MB")
    for name, (first, last) in drift(run, "fds").items():
        run.promise(last <= first + FD_SLACK, f"{name}: {first:g} open files became {last:g}")


async def settled(client: httpx.AsyncClient) -> bool:
    """Wait until no request runs or waits and no engine holds a page; returns False if that takes too long."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        health = (await client.get("/health")).json()
        states = await asyncio.to_thread(engines)
        held = [(state.pages.held, state.pages.sequences) for state in states.values()]
        if (health["running"], health["waiting"]) == (0, 0) and set(held) == {(0, 0)}:
            return True
        await asyncio.sleep(0.2)
    return False


def drift(run: Run, measure: str) -> dict[str, tuple[float, float]]:
    """Return component -> medians in the first and the last quarter of the samples, of its largest process."""
    quarter = max(1, len(run.samples) // 4)

    def median(name: str, samples: list[list[Process]]) -> float:
        most = [max((getattr(p, measure) for p in sample if p.name == name), default=None) for sample in samples]
        return statistics.median([value for value in most if value is not None] or [0.0])

    names = sorted({process.name for sample in run.samples for process in sample})
    return {name: (median(name, run.samples[:quarter]), median(name, run.samples[-quarter:])) for name in names}


def report(run: Run, command: str) -> str:
    """Return the text of docs/results/soak.md."""
    outcomes = Counter((ended.outcome, ended.stream) for ended in run.ended)
    verdict = "kept" if not run.broken else "**broken**: " + "; ".join(run.broken)
    lines = ["# Soak", "", f"`{command}`", "", f"Promises {verdict}.", ""]
    lines += ["| requests | whole | streamed |", "|---|---|---|"]
    names = sorted({name for name, _ in outcomes})
    lines += [f"| {name} | {outcomes[name, False]} | {outcomes[name, True]} |" for name in names]
    lines += ["", "| killed | times | answered again after, s |", "|---|---|---|"]
    for component in COMPONENTS:
        times = [one.recovered_at - one.at for one in run.kills if one.component == component]
        lines.append(f"| {component} | {len(times)} | {', '.join(f'{seconds:.1f}' for seconds in times)} |")
    lines += ["", "| process | RSS, MB: first quarter | last | open files: first | last |", "|---|---|---|---|---|"]
    fds = drift(run, "fds")
    for name, (first, last) in drift(run, "rss_mb").items():
        lines.append(f"| {name} | {first:.0f} | {last:.0f} | {fds[name][0]:.0f} | {fds[name][1]:.0f} |")
    return "\n".join(lines) + "\n\n" + EXPLANATION.format(*run.stored)


EXPLANATION = (
    "Written by the command above; rates and times are of the machine that it ran on.\n\n"
    "* *answered*: the text that the same request had got before, undisturbed, byte for byte, whole or streamed. "
    "*refused*: bad input, with the field's name.\n"
    f"  *left*: the client hung up, {LEAVE_S[0]:g} to {LEAVE_S[1]:g} s after asking.\n"
    "* *queue full*: 429. *unavailable*: 503, or the error event of a stream. *cut*: the connection ended, or Serve's "
    "proxy said 500, because the ingress\n  itself was killed. Each of the last two counts as wrong if no loss at the "
    "time excuses it.\n"
    "* *answered again*: from kill -9 until a request that needs all parts was answered with the right text.\n"
    f"* Memory and files: of the largest process of that name, in the median of samples taken each {SAMPLE_S:g} s. "
    "What was killed has a successor, so\n  engines and replicas are young.\n"
    "* After the last client: no page held in either engine (with the pool's integrity checked), as many actors of "
    "each class as before, no more\n  objects in Ray's store than before (Serve keeps some: {0.count} with {0.bytes} "
    "bytes before, {1.count} with {1.bytes} after), and every answer again\n  as it was.\n"
)


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=60, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("docs/results"), help="where soak.md goes")
    return parser.parse_args()


def main() -> int:
    options = parse()
    from deployments.app import build_app
    from deployments.local import deploy, local_ray

    port = free_port()
    with local_ray(ARGS.engines):
        deploy(build_app(ARGS), "127.0.0.1", port)
        run = asyncio.run(soak(f"http://127.0.0.1:{port}", options))
    command = f"python -m simsd_bench.cluster.soak --minutes {options.minutes:g} --clients {options.clients}"
    command += f" --kill-every {options.kill_every:g} --seed {options.seed}"
    text = report(run, command)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "soak.md").write_text(text)
    print(text)
    return 1 if run.broken else 0


if __name__ == "__main__":
    sys.exit(main())
