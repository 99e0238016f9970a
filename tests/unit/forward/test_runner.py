"""Static shapes: the same answers from padded, preallocated buffers as from the batch's own shapes."""

import pytest
import torch

from simsd.errors import ConfigError
from simsd.forward.runner import MAX_ROWS, CompiledRunner, EagerRunner, StaticRunner
from simsd.in_process import generate_all
from simsd.messages.request import Request
from tests.unit.loops import Pair, answers, mixed_requests, request


def run(
    pair: Pair, runner: str, requests: list[Request], **settings: int
) -> tuple[list[tuple[list[int], str, str]], StaticRunner]:
    target, draft = pair.worker("target", runner=runner), pair.worker("draft", runner=runner)
    done = answers(generate_all(pair.loop(target, draft, **settings), requests))
    for worker in (target, draft):
        assert worker.page_use().held == 0
    assert type(target.runner) is {"eager": EagerRunner, "graph": StaticRunner, "compile": CompiledRunner}[runner]
    return done, target.runner  # type: ignore[return-value]


def test_static_shapes_answer_alike(pair: Pair) -> None:
    """All methods in one batch, prompts longer than a bucket among them, alone and together."""
    requests = [
        *mixed_requests(),
        request("s2d2", 18, method="s2d2"),
        request("self", 40, method="exact", drafter="self"),
    ]
    expected, _ = run(pair, "eager", requests)
    together, runner = run(pair, "graph", requests)
    assert together == expected
    assert all(rows <= MAX_ROWS for _, rows, _ in runner.buckets)
    alone, _ = run(pair, "graph", requests, max_running=1)
    assert alone == expected


def test_a_bucket_is_allocated_once(pair: Pair) -> None:
    """Rounds of like shapes share buffers: few buckets for many forwards, at the same addresses."""
    target = pair.worker("target", runner="graph")
    loop = pair.loop(target, pair.worker("draft"))
    generate_all(loop, [request("a", 30, method="vanilla", max_tokens=30)])
    runner = target.runner
    assert isinstance(runner, StaticRunner)
    before = {shape: bucket.table.data_ptr() for shape, bucket in runner.buckets.items()}
    assert 1 <= len(before) <= 3
    done = generate_all(loop, [request("b", 30, method="vanilla", max_tokens=30)])
    assert done[0].stats.target_forwards > 20
    assert {shape: bucket.table.data_ptr() for shape, bucket in runner.buckets.items()} == before


def test_what_a_bucket_held_before_does_not_show(pair: Pair) -> None:
    """Longer sequences first, then shorter ones in the same buffers."""
    long, short = request("long", 60, gamma=4, layout="branches"), request("short", 33, gamma=2)
    fresh, _ = run(pair, "graph", [short])
    target, draft = pair.worker("target", runner="graph", prefix_cache=False), pair.worker("draft", runner="graph")
    loop = pair.loop(target, draft)
    generate_all(loop, [long, request("other", 61, method="exact")])
    assert answers(generate_all(loop, [short])) == fresh


@pytest.mark.slow
def test_compiled_graphs_answer_alike(pair: Pair) -> None:
    """All methods, alone and together; four graphs, compiled before that: one sequence, several; target, draft."""
    requests = [*mixed_requests(), request("self", 40, method="exact", drafter="self")]
    expected, _ = run(pair, "eager", requests)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert run(pair, "compile", requests)[0] == expected
    assert run(pair, "compile", requests, max_running=1)[0] == expected
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 2 * 4


@pytest.mark.slow
def test_without_a_compiler_the_setting_is_refused(pair: Pair) -> None:
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "no-such-compiler")}),
        pytest.raises(ConfigError, match=r"^runner compile: .*no-such-compiler"),
    ):
        pair.worker("target", runner="compile")
