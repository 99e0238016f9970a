"""Which positions a denoising step reveals, by hand-worked tables."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsd.block.remasking import choose, quota
from simsd.messages.request import DecodeParams, Remasking


@pytest.mark.parametrize(
    ("block_size", "steps", "per_step"),
    [
        (4, 4, [1, 1, 1, 1]),
        (4, 3, [2, 1, 1]),
        (4, 2, [2, 2]),
        (4, 1, [4]),
        (8, 3, [3, 3, 2]),
        (8, 5, [2, 2, 2, 1, 1]),
        (1, 1, [1]),
        (16, 6, [3, 3, 3, 3, 2, 2]),
    ],
)
def test_quota_by_hand(block_size: int, steps: int, per_step: list[int]) -> None:
    assert [quota(step, steps, block_size) for step in range(steps)] == per_step


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.data())
def test_quotas_fill_the_block_exactly(block_size: int, data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, block_size))
    quotas = [quota(step, steps, block_size) for step in range(steps)]
    assert sum(quotas) == block_size
    assert quotas == sorted(quotas, reverse=True)
    assert max(quotas) - min(quotas) <= 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.data())
def test_steps_beyond_the_plan_still_reveal(block_size: int, data: st.DataObject) -> None:
    """A block that speculation left in another rhythm never stalls."""
    steps = data.draw(st.integers(1, block_size))
    assert quota(data.draw(st.integers(0, 200)), steps, block_size) >= 1


OFFSETS = [1, 3, 4, 6]
CONFIDENCE = [0.5, 0.95, 0.2, 0.92]
ENTROPY = [0.30, 0.05, 0.90, 0.10]


@pytest.mark.parametrize(
    ("remasking", "steps", "step", "chosen"),
    [
        ("static", 8, 0, [1]),
        ("static", 4, 0, [1, 3]),
        ("static", 3, 0, [1, 3, 0]),  # 3, 3, 2
        ("static", 3, 2, [1, 3]),
        ("static", 1, 0, [1, 3, 0, 2]),  # eight owed, four open
        ("sequential", 8, 0, [0]),
        ("sequential", 4, 0, [0, 1]),
        ("sequential", 1, 0, [0, 1, 2, 3]),
        ("dynamic", 8, 0, [1, 3]),  # both above .9
        ("dynamic", 3, 0, [1, 3, 0]),  # the quota is more than those above
        ("entropy", 8, 0, [1, 3]),  # .05 + .10 = .15, + .30 = .45 is beyond .35
        ("entropy", 3, 0, [1, 3, 0]),  # the quota is more
    ],
)
def test_strategies_by_hand(remasking: Remasking, steps: int, step: int, chosen: list[int]) -> None:
    params = DecodeParams(remasking=remasking, steps=steps, threshold=0.9, entropy_bound=0.35)
    assert choose(params, step, 8, OFFSETS, CONFIDENCE, ENTROPY) == chosen


@pytest.mark.parametrize(
    ("threshold", "chosen"),
    [(0.0, [1, 3, 0, 2]), (0.2, [1, 3, 0]), (0.91, [1, 3]), (0.93, [1]), (0.95, [1]), (0.99, [1]), (1.0, [1])],
)
def test_dynamic_threshold(threshold: float, chosen: list[int]) -> None:
    """All above it, but not those on it; the surest one where there are none."""
    params = DecodeParams(remasking="dynamic", steps=8, threshold=threshold)
    assert choose(params, 0, 8, OFFSETS, CONFIDENCE, ENTROPY) == chosen


@pytest.mark.parametrize(
    ("bound", "chosen"),
    [
        (0.0, [1]),
        (0.06, [1]),
        (0.16, [1, 3]),
        (0.44, [1, 3]),
        (0.46, [1, 3, 0]),
        (1.30, [1, 3, 0]),
        (1.36, [1, 3, 0, 2]),
    ],
)
def test_entropy_bound(bound: float, chosen: list[int]) -> None:
    """Running sums .05, .15, .45, 1.35; the surest one where the bound is below them all."""
    params = DecodeParams(remasking="entropy", steps=8, entropy_bound=bound)
    assert choose(params, 0, 8, OFFSETS, CONFIDENCE, ENTROPY) == chosen


@pytest.mark.parametrize("remasking", ["static", "dynamic", "sequential", "entropy"])
def test_ties_go_to_the_left(remasking: Remasking) -> None:
    params = DecodeParams(remasking=remasking, steps=2, entropy_bound=0.0)
    assert choose(params, 0, 4, [0, 1, 2, 3], [0.5] * 4, [0.5] * 4) == [0, 1]


@pytest.mark.parametrize("remasking", ["static", "dynamic", "sequential", "entropy"])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_step_reveals_open_positions_once_and_at_least_its_quota(remasking: Remasking, data: st.DataObject) -> None:
    block_size = data.draw(st.integers(1, 16))
    steps, step = data.draw(st.integers(1, block_size)), data.draw(st.integers(0, 20))
    size = data.draw(st.integers(1, block_size))
    unit = st.floats(0, 1)
    confidence = data.draw(st.lists(unit, min_size=size, max_size=size))
    entropy = data.draw(st.lists(unit, min_size=size, max_size=size))
    params = DecodeParams(remasking=remasking, steps=steps, threshold=0.5)
    chosen = choose(params, step, block_size, list(range(size)), confidence, entropy)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(range(size))
    assert len(chosen) >= min(quota(step, steps, block_size), size)
