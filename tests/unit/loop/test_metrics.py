"""The loop's counters: by hand, and against what the requests themselves were told."""

from collections import Counter

import pytest

from simsd.in_process import generate_all
from simsd.loop.metrics import LoopMetrics, ModelMetrics, by_step
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, RevealKind
from simsd.messages.round import BlockVerdict, Verdict, Verdicts, Work
from tests.unit.loops import Pair, mixed_requests, request

pytestmark = pytest.mark.timeout(300)


PREFILL = Work("a", DecodeParams(), 8, 0, [], 0, None, 0)
DECODE = Work("a", DecodeParams(), 8, 0, [], 0, BlockState.behind(0, [1], 4, 3), 0)


def verdict(drafted: int, *kinds: RevealKind, fallback: int = 0) -> Verdict:
    reveals = [(offset, 9) for offset in range(len(kinds))]
    return Verdict(8, [BlockVerdict(reveals, list(kinds), drafted=drafted, fallback=fallback)])


def test_by_step() -> None:
    """Five rounds: of 4 tokens, twice of 2, twice of none."""
    assert by_step(Counter({4: 1, 2: 2, 0: 2})) == [3, 3, 1, 1]
    assert by_step(Counter()) == by_step(Counter({0: 7})) == []


def test_a_call_is_decode_as_soon_as_one_sequence_decodes() -> None:
    model = ModelMetrics()
    model.count([PREFILL, PREFILL], 2, 30, 0.5)
    model.count([PREFILL, DECODE], 1, 10, 0.25)
    assert model == ModelMetrics(prefill_forwards=2, decode_forwards=1, rows=40, seconds=0.75)


def test_rounds_by_hand() -> None:
    """A full acceptance with its bonus, a rejection at step 1, a fallback, and one that still waits for its draft."""
    verdicts = {
        "all": verdict(3, "accepted", "accepted", "accepted", "bonus"),
        "some": verdict(3, "accepted", "recovered"),
        "none": verdict(0, "denoised", "denoised", fallback=2),
        "late": Verdict(8),
    }
    metrics = LoopMetrics()
    drafting, verifying = [DECODE] * 3, [DECODE] * 4
    metrics.count(drafting, verifying, Verdicts(verdicts, 1, 70, 0.5, 3, 36, 0.25))
    metrics.count([], [PREFILL], Verdicts({"new": Verdict(8)}, 1, 16, 0.5))
    assert (metrics.rounds, metrics.sequence_rounds) == (2, 5)
    assert (metrics.recovered, metrics.bonus, metrics.fallback_tokens) == (1, 1, 2)
    assert by_step(metrics.drafts) == [2, 2, 2]
    assert by_step(metrics.accepts) == [2, 1, 1]
    assert metrics.target == ModelMetrics(prefill_forwards=1, decode_forwards=1, rows=86, seconds=1.0)
    assert metrics.draft == ModelMetrics(decode_forwards=3, rows=36, seconds=0.25)


def test_the_loops_counters_are_the_sum_of_the_requests(pair: Pair) -> None:
    """All methods at once, then one prompt again, whose pages are cached."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    requests = mixed_requests()
    completions = generate_all(loop, requests) + generate_all(loop, requests[:1])
    stats, metrics = [completion.stats for completion in completions], loop.metrics
    for ours, theirs in {
        "sequence_rounds": "rounds",
        "prompt_tokens": "prompt_tokens",
        "prefix_hit_tokens": "cached_tokens",
        "generated_tokens": "completion_tokens",
        "recovered": "recovered",
        "bonus": "bonus",
        "fallback_tokens": "fallback_tokens",
    }.items():
        assert getattr(metrics, ours) == sum(getattr(each, theirs) for each in stats), ours
    assert sum(by_step(metrics.drafts)) == sum(each.drafted for each in stats)
    assert sum(by_step(metrics.accepts)) == sum(each.accepted for each in stats)
    histogram: Counter[int] = Counter()
    for each in stats:
        histogram.update(each.accept_histogram)
    assert metrics.accepts == histogram
    assert metrics.prefix_hit_tokens == 144
    assert metrics.rounds < metrics.sequence_rounds
    assert metrics.prompt_tokens == sum(len(each.prompt_ids) for each in requests) + 150


def test_forwards_by_kind(pair: Pair) -> None:
    """228 tokens in whole blocks by 64: three chunks of prefill, then every round decodes, in both models."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), prefill_rows=64)
    (completion,) = generate_all(loop, [request("long", 230, gamma=4, draft_steps=4)])
    target, draft = loop.metrics.target, loop.metrics.draft
    assert target.prefill_forwards == draft.prefill_forwards == 4
    assert target.decode_forwards == completion.stats.rounds - 4
    assert draft.decode_forwards + 4 == completion.stats.draft_forwards
    assert target.rows > 228 and draft.rows > 228
    assert target.seconds > 0 and draft.seconds > 0
