"""Noise is a function of its arguments and looks like noise; filters and samples are what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from simsd.decoding.noise import (
    ACCEPT,
    DRAFT,
    RECOVER,
    SAMPLE,
    first_uniform,
    gumbel_argmax,
    noise_keys,
    token_counters,
    uniform,
)
from simsd.decoding.sampling import entropies
from simsd.messages.request import DecodeParams
from simsd.verification.schemes import Want
from tests.unit.numbers import drafted, log_probs_of, sample, score

PURPOSES = (SAMPLE, DRAFT, ACCEPT, RECOVER)
UNLIKELY = 1e-3
"""Seeds are fixed, so a p-value below this is a fault, not bad luck."""


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def noise(keys: NDArray[np.int64], tokens: NDArray[np.int64]) -> Tensor:
    """[M, T] uniform numbers of these tokens."""
    return uniform(torch.from_numpy(keys), token_counters(torch.from_numpy(tokens)))


def draw(count: int, varied: str, purpose: int = SAMPLE, start: int = 0) -> Tensor:
    """`count` uniform numbers [count] that differ in one argument only."""
    if varied == "token":
        return noise(noise_keys(ints(1), ints(2), ints(3), purpose), np.arange(start, start + count))[0]
    parts = {name: np.full(count, value) for name, value in (("seed", 1), ("position", 2), ("revealed", 3))}
    parts[varied] = np.arange(start, start + count)
    return noise(noise_keys(parts["seed"], parts["position"], parts["revealed"], purpose), ints(5))[:, 0]


ARGUMENTS = pytest.mark.parametrize("varied", ["seed", "position", "revealed", "token"])


@ARGUMENTS
def test_noise_is_uniform(varied: str) -> None:
    u = draw(20_000, varied)
    assert ((u > 0) & (u < 1)).all()
    assert stats.kstest(u.numpy(), "uniform").pvalue > UNLIKELY
    counts = torch.histc(u, bins=64, min=0, max=1)
    assert stats.chisquare(counts.numpy()).pvalue > UNLIKELY


def independent(a: Tensor, b: Tensor) -> bool:
    """Chi-square over a 12 x 12 grid of pairs."""
    cells = (a * 12).long() * 12 + (b * 12).long()
    return bool(stats.chisquare(torch.bincount(cells, minlength=144).numpy()).pvalue > UNLIKELY)


@ARGUMENTS
def test_neighbouring_numbers_are_independent(varied: str) -> None:
    """Of one seed, position, count or token and the next: requests and positions are numbered in sequence."""
    for distance in (1, 2):
        assert independent(draw(20_000, varied), draw(20_000, varied, start=distance))


@ARGUMENTS
def test_purposes_are_independent(varied: str) -> None:
    """Else the accept test would favour what the draft just drew."""
    numbers = [draw(20_000, varied, purpose) for purpose in PURPOSES]
    for i in range(len(PURPOSES)):
        for j in range(i):
            assert independent(numbers[i], numbers[j])


def test_independence_check_can_fail() -> None:
    u = draw(20_000, "seed")
    assert not independent(u, u)
    assert not independent(u, (u + 0.05) % 1)


def test_noise_is_a_function_of_its_arguments_alone() -> None:
    """Alone, in a batch, in another order, after other draws: the same numbers; and every argument matters."""
    seed, position, revealed = ints(7, 7, -3, 2**62), ints(0, 1, 5, 9), ints(0, 0, 2, 3)
    keys = noise_keys(seed, position, revealed, DRAFT)
    torch.manual_seed(0)
    torch.rand(10)
    for i in range(4):
        assert noise_keys(seed[i : i + 1], position[i : i + 1], revealed[i : i + 1], DRAFT).item() == keys[i]
    order = ints(2, 0, 3, 1)
    assert (noise_keys(seed[order], position[order], revealed[order], DRAFT) == keys[order]).all()
    assert torch.equal(noise(keys, np.arange(50))[:, 20:30], noise(keys, np.arange(20, 30)))
    assert (first_uniform(keys) == noise(keys, np.arange(1))[:, 0].numpy()).all()
    changed = [
        (8, 4, 2, DRAFT),
        (7, 5, 2, DRAFT),
        (7, 4, 3, DRAFT),
        (7, 4, 2, ACCEPT),
        (4, 7, 2, DRAFT),
        (7, 2, 4, DRAFT),
    ]
    distinct = {noise_keys(ints(a), ints(b), ints(c), d).item() for a, b, c, d in [(7, 4, 2, DRAFT), *changed]}
    assert len(distinct) == 7


def test_the_hash_is_pinned() -> None:
    """An answer with a seed stays the same from release to release: splitmix64, done here in Python's own integers."""
    mask = 2**64 - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    for seed, position, revealed, purpose, token in [(0, 0, 0, 0, 0), (123, 45, 6, 2, 789), (-5, 2047, 15, 3, 151935)]:
        key = mix((seed + golden) & mask)
        for part in (position, revealed, purpose):
            key = mix((key + (part + 1) * golden) & mask)
        expected = ((mix((key + (token + 1) * golden) & mask) >> 11) + 0.5) * 2.0**-53
        keys = noise_keys(ints(seed), ints(position), ints(revealed), purpose)
        assert noise(keys, ints(token)).item() == expected


def test_gumbel_argmax_draws_from_the_softmax() -> None:
    weights = torch.tensor([0.5, -1.0, 2.0, 0.0, -math.inf, 1.0])
    count = 30_000
    keys = noise_keys(np.arange(count), np.full(count, 3), np.full(count, 1), SAMPLE)
    drawn = torch.bincount(gumbel_argmax(weights.expand(count, -1), torch.from_numpy(keys)), minlength=6)
    assert drawn[4] == 0
    expected = weights.softmax(0)[[0, 1, 2, 3, 5]].double()
    observed = drawn[[0, 1, 2, 3, 5]].numpy()
    assert stats.chisquare(observed, (expected / expected.sum() * count).numpy()).pvalue > UNLIKELY
    flat = torch.full((5,), count / 5).double().numpy()
    assert stats.chisquare(observed, flat).pvalue < 1e-9  # the test itself can tell distributions apart


def test_noise_belongs_to_the_token_not_to_its_column() -> None:
    """A sample over a top-k list equals the sample over the vocabulary with the rest at -inf."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(200, 30, generator=generator)
    keys = torch.from_numpy(noise_keys(np.arange(200), np.zeros(200, np.int64), np.zeros(200, np.int64), DRAFT))
    ids = torch.stack([torch.randperm(30, generator=generator)[:10] for _ in range(200)])
    columns = gumbel_argmax(weights.gather(1, ids), keys, ids)
    cut = torch.full_like(weights, -math.inf).scatter(1, ids, weights.gather(1, ids))
    assert torch.equal(ids.gather(1, columns.unsqueeze(1)).squeeze(1), gumbel_argmax(cut, keys))


def rows(*settings_of: tuple[float, int, float]) -> list[Want]:
    """(temperature, top_k, top_p) per row; seeds and positions 0, 1, 2, ..."""
    params = [DecodeParams(temperature=t, top_k=k, top_p=p, seed=i) for i, (t, k, p) in enumerate(settings_of)]
    return [(p, i, 0) for i, p in enumerate(params)]


def slow_softmax(values: list[float]) -> list[float]:
    highest = max(values)
    weights = [math.exp(v - highest) for v in values]
    return [w / sum(weights) for w in weights]


def slow_filter(logits: list[float], temperature: float, top_k: int, top_p: float) -> tuple[list[float], float]:
    """Probabilities after all filters, one token at a time; and how near top_p was to a border.

    Among tokens tied at the border of top-p any may stay, so ties are returned in the order of their ids.
    """
    if temperature == 0:
        return slow_softmax(logits), 1.0
    probs = slow_softmax([x / temperature for x in logits])
    if top_k:
        least = sorted(probs, reverse=True)[min(top_k, len(probs)) - 1]
        probs = [p if p >= least else 0.0 for p in probs]
        probs = [p / sum(probs) for p in probs]
    margin = 1.0
    if top_p < 1:
        kept: set[int] = set()
        for token in sorted(range(len(probs)), key=lambda i: (-probs[i], i)):
            mass = sum(probs[i] for i in kept)
            margin = min(margin, abs(mass - top_p)) if kept else margin
            if kept and mass >= top_p:
                break
            kept.add(token)
        total = sum(probs[i] for i in kept)
        probs = [p / total if i in kept else 0.0 for i, p in enumerate(probs)]
    return probs, margin


logit_rows = st.integers(2, 12).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(-8, 8).map(lambda x: x / 2), min_size=size, max_size=size), min_size=1, max_size=5
    )
)
filters = st.tuples(
    st.sampled_from([0.0, 0.3, 1.0, 2.5]), st.sampled_from([0, 1, 2, 3, 50]), st.sampled_from([1.0, 0.9, 0.55, 0.07])
)


@settings(max_examples=100, deadline=None)
@given(logit_rows, st.data())
def test_filters_against_a_slow_reference(logits: list[list[float]], data: st.DataObject) -> None:
    """Logits from a coarse grid, so ties are common; every row with its own settings."""
    wanted = [data.draw(filters) for _ in logits]
    expected = [slow_filter(row, *each) for row, each in zip(logits, wanted, strict=True)]
    assume(all(margin > 1e-5 for _, margin in expected))
    found = log_probs_of(torch.tensor(logits), rows(*wanted)).exp()
    for row, found_row, (probs, _) in zip(logits, found.tolist(), expected, strict=True):
        assert sorted(found_row) == pytest.approx(sorted(probs), abs=1e-5)
        ranked = sorted(range(len(row)), key=lambda i: -row[i])
        kept = [i for i in ranked if found_row[i] > 0]
        assert [row[i] for i in kept] == [row[i] for i in ranked[: len(kept)]]  # the likeliest, whichever of a tie
        for i in kept:  # no probability went to another token
            assert found_row[i] == pytest.approx(
                max(p for p, x in zip(probs, row, strict=True) if x == row[i]), abs=1e-5
            )


def test_filters_by_hand() -> None:
    """p = .5 .25 .125 .125 at T = 1."""
    logits = torch.tensor([[8.0, 4.0, 2.0, 2.0]]).log()
    table = {
        (1.0, 0, 1.0): [0.5, 0.25, 0.125, 0.125],
        (1.0, 1, 1.0): [1, 0, 0, 0],
        (1.0, 2, 1.0): [2 / 3, 1 / 3, 0, 0],
        (1.0, 3, 1.0): [0.5, 0.25, 0.125, 0.125],  # the third place is shared: both stay
        (1.0, 99, 1.0): [0.5, 0.25, 0.125, 0.125],
        (1.0, 0, 0.4): [1, 0, 0, 0],
        (1.0, 0, 0.6): [2 / 3, 1 / 3, 0, 0],
        (1.0, 0, 0.001): [1, 0, 0, 0],  # never empty
        (1.0, 2, 0.6): [1, 0, 0, 0],  # top-p counts what top-k left: .667 suffices
        (0.5, 0, 1.0): [16 / 22, 4 / 22, 1 / 22, 1 / 22],
        (0.5, 0, 0.8): [0.8, 0.2, 0, 0],
        (0.0, 1, 0.1): [0.5, 0.25, 0.125, 0.125],  # greedy: only asked for confidences
    }
    for each, expected in table.items():
        assert log_probs_of(logits, rows(each)).exp()[0].tolist() == pytest.approx(expected, abs=1e-6), each
    together = log_probs_of(logits.expand(len(table), -1), rows(*table)).exp()
    assert torch.allclose(together, torch.tensor(list(table.values())), atol=1e-6)


def test_a_token_at_minus_infinity_is_never_kept() -> None:
    """The mask token's logit is -inf before the filters."""
    logits = torch.tensor([[0.0, -math.inf, 1.0]]).expand(3, -1)
    probs = log_probs_of(logits, rows((1.0, 0, 1.0), (1.0, 3, 0.999), (0.0, 0, 1.0))).exp()
    assert (probs[:, 1] == 0).all()
    assert torch.allclose(probs.sum(dim=1), torch.ones(3))
    assert entropies(log_probs_of(logits, rows(*[(1.0, 0, 1.0)] * 3))).isfinite().all()


def test_score_by_hand() -> None:
    """Greedy rows: the best token, its probability twice; else the sample and its own probability. Entropy in nats."""
    log_probs = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]).log()
    scores = score(log_probs, rows((0, 0, 1), (0, 0, 1), (0, 0, 1)))
    assert (scores.token, scores.entropy) == ([0, 0, 2], [])
    assert scores.confidence == scores.top == pytest.approx([0.5, 1.0, 0.5])
    by_hand = [1.5 * math.log(2), 0.0, -0.2 * math.log(0.2) - 0.3 * math.log(0.3) - 0.5 * math.log(0.5)]
    assert entropies(log_probs).tolist() == pytest.approx(by_hand, abs=1e-6)
    by_entropy: list[Want] = [(DecodeParams(remasking="entropy"), 0, 0)] * 3
    assert score(log_probs, by_entropy).entropy == pytest.approx(by_hand, abs=1e-6)
    count = 50
    many, params = log_probs[:1].expand(count, -1), rows(*[(1.0, 0, 1.0)] * count)
    scores = score(many, params)
    assert set(scores.token) == {0, 1, 2}
    assert scores.confidence == pytest.approx([many[0].exp()[t].item() for t in scores.token])
    assert scores.top == pytest.approx([0.5] * count)


def test_filters_do_not_change_confidence_and_entropy() -> None:
    """p = .5 .25 .125 .125 at T = 1, and 16 4 1 1 of 22 at T = 0.5; top-k 1, top-p and min-p leave only token 0."""
    logits = torch.tensor([[8.0, 4.0, 2.0, 2.0]]).log()
    narrow = ({"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0})
    probs = {1.0: [0.5, 0.25, 0.125, 0.125], 0.5: [16 / 22, 4 / 22, 1 / 22, 1 / 22]}
    settings_of = [{"temperature": t, "remasking": "entropy"} | each for t in probs for each in narrow]
    wants: list[Want] = [(DecodeParams(**each), 0, 0) for each in settings_of]  # type: ignore[arg-type]
    scores = score(logits.expand(len(wants), -1), wants)
    assert scores.token == [0] * len(wants)
    expected = [probs[t] for t in probs for _ in narrow]
    assert scores.confidence == pytest.approx([p[0] for p in expected])
    assert scores.top == pytest.approx([p[0] for p in expected])
    assert scores.entropy == pytest.approx([-sum(x * math.log(x) for x in p) for p in expected], abs=1e-6)
    free = [(DecodeParams(temperature=1.0, top_k=3, seed=i), i, 0) for i in range(40)]
    scores = score(logits.expand(40, -1), free)
    assert set(scores.token) == {0, 1, 2, 3}, "the third place is shared"
    assert scores.confidence == pytest.approx([probs[1.0][token] for token in scores.token])


def test_a_sample_does_not_depend_on_its_batch() -> None:
    """Rows at several temperatures, alone and together, and by purpose."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(40, 25, generator=generator) * 2
    params = rows(*[((0.0, 0.7, 1.0, 1.5)[i % 4], (0, 5)[i % 2], (1.0, 0.9, 0.5)[i % 3]) for i in range(40)])
    tokens = sample(logits, params)
    for i in range(40):
        assert sample(logits[i : i + 1], params[i : i + 1]).item() == tokens[i]
    greedy = torch.tensor([p.temperature == 0 for p, _, _ in params])
    assert torch.equal(tokens[greedy], logits[greedy].argmax(dim=1))
    assert not torch.equal(tokens[~greedy], drafted(logits, params)[0][~greedy])  # another purpose, other noise


def test_very_low_temperature_is_greedy() -> None:
    logits = torch.randn(30, 20, generator=torch.Generator().manual_seed(2)) * 4
    params = rows(*[(1e-6, 0, 1.0)] * 30)
    log_probs = log_probs_of(logits, params)
    assert not log_probs.isnan().any()
    assert torch.equal(sample(logits, params), logits.argmax(dim=1))
