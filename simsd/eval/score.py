"""Accuracies of answers, with their uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from simsd.eval.families import FAMILIES
from simsd.eval.question import Question

Z_95 = 1.959964


@dataclass(frozen=True)
class FamilyScore:
    """The accuracy in one family: `correct` of `n` answers, or parts of answers, with the 95 % Wilson interval."""

    n: int
    correct: int
    accuracy: float
    low: float
    high: float


def wilson_interval(correct: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's score interval for `correct` of `n`; it is (0, 1) if n is 0."""
    if not 0 <= correct <= n:
        raise ValueError(f"correct must lie in 0..{n}, it is {correct}")
    if n == 0:
        return 0.0, 1.0
    rate = correct / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return min(rate, max(0.0, middle - half)), max(rate, min(1.0, middle + half))


def family_score(correct: int, n: int) -> FamilyScore:
    low, high = wilson_interval(correct, n)
    return FamilyScore(n, correct, correct / n if n else 0.0, low, high)


def score(questions: Sequence[Question], texts: Sequence[str]) -> dict[str, FamilyScore]:
    """Grade every text by its question, and return the score of each family, in the order of FAMILIES."""
    if len(questions) != len(texts):
        raise ValueError(f"{len(questions)} questions but {len(texts)} texts")
    verdicts: dict[str, list[bool]] = {}
    for question, text in zip(questions, texts, strict=True):
        verdicts.setdefault(question.family, []).extend(FAMILIES[question.family].grade(question, text))
    return {name: family_score(sum(verdicts[name]), len(verdicts[name])) for name in FAMILIES if name in verdicts}
