"""Accuracies and their intervals."""

import pytest

from simsd.eval.families import FAMILIES
from simsd.eval.score import score, wilson_interval


def test_score_counts_by_family() -> None:
    math = FAMILIES["math"].questions("heldout", 4)
    trivia = FAMILIES["trivia"].questions("heldout", 2)
    texts = [q.answer for q in math[:3]] + ["", "", trivia[1].answer]
    result = score([*math, *trivia], texts)
    assert list(result) == ["math", "trivia"]
    assert (result["math"].n, result["math"].correct, result["math"].accuracy) == (4, 3, 0.75)
    assert result["trivia"].correct == 1
    with pytest.raises(ValueError, match="6 questions but 1 texts"):
        score([*math, *trivia], [""])


def test_wilson_interval_against_published_values() -> None:
    low, high = wilson_interval(15, 148)
    assert (round(low, 4), round(high, 4)) == (0.0624, 0.1605)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    for n in range(1, 400):
        assert (wilson_interval(n, n)[1], wilson_interval(0, n)[0]) == (1.0, 0.0)
    with pytest.raises(ValueError, match=r"0\.\.2"):
        wilson_interval(3, 2)
