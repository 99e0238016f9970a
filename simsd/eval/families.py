"""The four families of questions on which the shipped pair is trained and evaluated. Nothing here imports torch."""

from simsd.eval.choice_family import CHOICE
from simsd.eval.code_family import CODE
from simsd.eval.math_family import MATH
from simsd.eval.question import Family, Question, Split
from simsd.eval.trivia_family import TRIVIA

__all__ = ["FAMILIES", "Family", "Question", "Split", "leaked_prompts"]

FAMILIES: dict[str, Family] = {family.name: family for family in (MATH, CODE, TRIVIA, CHOICE)}


def leaked_prompts(train: list[str], n: int = 2000, seed: int = 0) -> list[str]:
    """Return the held-out prompts, of n in each family, that occur in the training prompts. There must be none."""
    seen = set(train)
    held = (q.prompt for family in FAMILIES.values() for q in family.questions("heldout", n, seed))
    return sorted(prompt for prompt in held if prompt in seen)
