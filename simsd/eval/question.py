"""Questions, families of questions, and the rule that separates training from held-out questions."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

Split = Literal["train", "heldout", "phrasing"]
"""heldout has the wordings of training and values that training never sees; phrasing has wordings, names and objects
that training never sees."""

HELD_OUT_ONE_IN = 8


def held_out(*key: object) -> bool:
    """Whether what `key` names, such as a pair of operands or a set of options, belongs to the held-out split.

    A stable hash of the key decides, so the splits need no list and never change.
    """
    text = "|".join(str(part) for part in key)
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


@dataclass(frozen=True)
class Question:
    """One question, the answer that a model is taught to give, and what its checker needs.

    options: for choice, the texts of the options, including the right one.
    accepted: for trivia and choice, the words that the answer must have.
    rejected: for trivia, answers to other questions of the kind, which the answer must not have.
    function: for code, the name that the function must have.
    inputs: for code, the arguments of each call, as Python literals.
    tools: the tools of the request as JSON, in OpenAI's form, or empty.
    """

    family: str
    prompt: str
    answer: str
    options: tuple[str, ...] = ()
    accepted: str = ""
    rejected: tuple[str, ...] = ()
    function: str = ""
    inputs: tuple[str, ...] = ()
    tools: str = ""


@dataclass(frozen=True)
class Family:
    """A generator of questions and their checker.

    draw: returns a question of the split that it is asked for. verdict: tells whether a text is a right answer.
    parts: for questions of several parts, tells for each whether the text has it right.
    """

    name: str
    draw: Callable[[Random, Split], Question]
    verdict: Callable[[Question, str], bool]
    parts: Callable[[Any, str], list[bool]] | None = None

    def questions(self, split: Split, n: int, seed: int = 0) -> list[Question]:
        """Return `n` questions with different prompts, or fewer if the split has fewer. A seed gives the same ones."""
        rng = Random(f"{self.name}/{split}/{seed}")
        found: dict[str, Question] = {}
        misses = 0
        while len(found) < n and misses < 2000:
            question = self.draw(rng, split)
            misses = misses + 1 if question.prompt in found else 0
            found.setdefault(question.prompt, question)
        return list(found.values())

    def check(self, question: Question, text: str) -> bool:
        """Whether `text`, an answer without special tokens, is right. `ValueError` for another family's question."""
        if question.family != self.name:
            raise ValueError(f"a {question.family} question cannot be checked by the {self.name} family")
        return self.verdict(question, text.strip())

    def grade(self, question: Question, text: str) -> list[bool]:
        """Whether each part of an answer is right; a family whose questions have no parts gives one verdict."""
        return self.parts(question, text.strip()) if self.parts else [self.check(question, text)]
