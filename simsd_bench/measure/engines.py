"""Measures the same rounds in one process, and with engines on a local Ray, called as a coordinator calls them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from simsd.eval.datasets import Item
from simsd.loop.loop import Loop
from simsd.messages.worker import Role
from simsd_bench.measure.decode import Tick
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.ratios import ratio, spread
from simsd_bench.measure.rounds import Sizes, Window, decode_together, prompts_of

Row = dict[str, Any]
LINES = ("in process", "engines", "engines, a round at a time")
METHODS = ("vanilla-static", "simsd", "simsd-sequential")


def run(spec: PairSpec, asked: Sequence[Item], block_size: int, sizes: Sizes, note: Callable[[str], Tick]) -> list[Row]:
    """Return tokens/s of methods for each batch size in the three ways of `LINES`, which take turns."""
    named = methods(block_size, Protocol(sizes.engine_tokens, random_weights=spec.random_weights is not None))
    inside = spec.loop(block_size, max(sizes.batches))
    prompts = prompts_of(inside, asked, max(*sizes.batches, sizes.alone))
    cases = [(batch, name) for batch in sizes.batches for name in METHODS]
    found: dict[tuple[int, str, str], list[float]] = {(*case, line): [] for case in cases for line in LINES}
    tick = note(f"engines on Ray: {len(METHODS)} methods, {', '.join(map(str, sizes.batches))} at a time")
    with _engines(spec, block_size) as clients:
        ways = [
            inside,
            *(
                Loop(
                    clients["target"],
                    clients["draft"],
                    inside.tokenizer,
                    inside.config.model_copy(update={"async_scheduling": ahead}),
                )
                for ahead in (True, False)
            ),
        ]
        for repeat in range(1 + sizes.repeats):
            for batch, name in cases:
                for line, loop in zip(LINES, ways, strict=True):
                    alone = range(0, max(batch, sizes.alone // 2), batch)
                    windows = [decode_together(loop, prompts[i : i + batch], named[name]) for i in alone]
                    if repeat:  # the first pass warms up
                        found[batch, name, line].append(Window.sum(windows).tokens_per_s)
                    tick()
    return [
        {
            "batch": batch,
            "method": name,
            "line": line,
            **spread("tokens_per_s", found[batch, name, line]),
            **ratio("ratio", found[batch, name, line], found[batch, name, LINES[0]]),
        }
        for batch, name in cases
        for line in LINES
    ]


@contextmanager
def _engines(spec: PairSpec, block_size: int) -> Iterator[dict[Role, Any]]:
    """Run a draft's and a target's engine while the context is open, and yield their clients."""
    from deployments.local import local_ray

    roles: tuple[Role, ...] = get_args(Role)
    with local_ray(len(roles)):
        import ray

        from deployments.engine import Lent, make_worker, start_engine
        from deployments.lease import EngineClient

        engines = {role: start_engine(spec.settings(role, block_size), make_worker) for role in roles}
        yield {role: EngineClient(role, Lent(e, ray.get(e.info.remote())), None) for role, e in engines.items()}
