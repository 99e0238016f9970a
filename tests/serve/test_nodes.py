"""Pairs on several nodes, one of which is lost."""

import pytest

from simsd_bench.cluster.scaling import measure


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pairs_come_and_go_and_a_node_is_lost() -> None:
    """Every request ends in the right text, or in an error that the lost node excuses."""
    run = measure(3, 12)
    assert not run.broken
    assert [step.pairs for step in run.steps] == [1, 2, 3, 2, 3, 1, 1]
    assert sum(ended.outcome == "answered" for ended in run.ended) > 50
