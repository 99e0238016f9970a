"""A family of questions with the third split."""

from collections.abc import Callable
from random import Random
from typing import cast

from simsd.eval import question
from training.families.parts import Split

__all__ = ["Family"]


class Family(question.Family):
    """A family as in `simsd.eval`, whose `draw` also knows the split `phrasing`."""

    draw: Callable[[Random, Split], question.Question]

    def questions(self, split: Split, n: int, seed: int = 0) -> list[question.Question]:
        """Return `n` questions with different prompts, or fewer if the split has fewer."""
        return super().questions(cast(question.Split, split), n, seed)
