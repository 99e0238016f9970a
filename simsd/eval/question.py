"""What a question is, what a family of questions is, and the rule that keeps the splits apart."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

Split = Literal["train", "heldout"]

HELD_OUT_ONE_IN = 8


def held_out(*key: object) -> bool:
    """Whether the thing that `key` names (an operand pair, an option set, ...) belongs to the held-out split.

    A stable hash of the key decides, so the splits need no list and never move.
    """
    text = "|".join(str(part) for part in key)
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


@dataclass(frozen=True)
class Question:
    """One question with the answer a model is taught to give, and what its checker needs.

    options   choice: the option texts, the right one included
    accepted  trivia, choice: the words that must be there
    rejected  trivia: answers to other questions of the kind, which must not be there
    function  code: the name the function must have
    inputs    code: Python literals, one argument each
    """

    family: str
    prompt: str
    answer: str
    options: tuple[str, ...] = ()
    accepted: str = ""
    rejected: tuple[str, ...] = ()
    function: str = ""
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """A seeded generator and a checker. `draw` must return a question of the split it is asked for."""

    name: str
    draw: Callable[[Random, Split], Question]
    verdict: Callable[[Question, str], bool]

    def questions(self, split: Split, n: int, seed: int = 0) -> list[Question]:
        """Up to `n` questions with different prompts (fewer where the split has fewer), the same for a seed."""
        rng = Random(f"{self.name}/{split}/{seed}")
        found: dict[str, Question] = {}
        misses = 0
        while len(found) < n and misses < 2000:
            question = self.draw(rng, split)
            misses = misses + 1 if question.prompt in found else 0
            found.setdefault(question.prompt, question)
        return list(found.values())

    def check(self, question: Question, text: str) -> bool:
        """Whether `text`, an answer without special tokens, is right."""
        if question.family != self.name:
            raise ValueError(f"a {question.family} question cannot be checked by the {self.name} family")
        return self.verdict(question, text.strip())
