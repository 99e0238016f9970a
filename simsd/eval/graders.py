"""Graders of answers to questions of public data sets, by the rules of the papers of these sets."""

import re
import string
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from simsd.eval.sandbox import run_program

NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
LETTERS = (
    re.compile(r"answer\s*(?:is|:)?\s*:?\s*\W*([A-D])\b", re.IGNORECASE),
    re.compile(r"\A\W*([A-D])(?:[.:),*]|\s*$)", re.MULTILINE),
    re.compile(r"\(([A-D])\)"),
    re.compile(r"\b([B-D])\b"),
)
"""The patterns of a chosen letter, the clearest one first. The last one leaves out A, which may be an article."""


def final_number(text: str) -> Decimal | None:
    """Return the number after the last `####`, or else the last number of the text; None if it has no number."""
    marked = text.rsplit("####", 1)
    found = NUMBER.findall(marked[1]) if len(marked) == 2 else []
    number = found[0] if found else next(iter(NUMBER.findall(text)[::-1]), None)
    if number is None:
        return None
    try:
        return Decimal(number.replace(",", "").replace("$", ""))
    except InvalidOperation:
        return None


def same_number(text: str, reference: str) -> bool:
    """GSM8K: whether the final numbers of an answer and of the set's worked answer `reference` are equal."""
    expected = final_number(reference)
    return expected is not None and final_number(text) == expected


def code_of(text: str) -> str:
    """Return the code of an answer: its first fenced block, the text between [BEGIN] and [DONE], or the whole text."""
    if fenced := FENCE.search(text):
        return fenced.group(1)
    return text.split("[BEGIN]")[-1].split("[DONE]")[0]


def passes_tests(text: str, setup: str, tests: Sequence[str]) -> bool:
    """MBPP: whether the answer's code, `setup` and all assertions of `tests` run in the sandbox."""
    return run_program("\n".join([code_of(text), setup, *tests]))


def normalised(text: str) -> str:
    """Normalise a text by TriviaQA's rule: lower case, no punctuation, no articles, and single spaces."""
    kept = "".join(" " if char in string.punctuation + "‘’´`" else char for char in text.lower().replace("_", " "))
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


def names_alias(text: str, aliases: Sequence[str]) -> bool:
    """TriviaQA: whether the answer is one of the aliases or contains one as whole words. All are normalised."""
    said = f" {normalised(text)} "
    return any(alias and f" {alias} " in said for alias in map(normalised, aliases))


def chosen_letter(text: str) -> str | None:
    """MMLU: return the chosen letter, or None if there is none.

    It is the letter after "answer is", at the beginning of the text or of a line, in brackets, or alone.
    """
    found = next((match for pattern in LETTERS if (match := pattern.search(text))), None)
    return found.group(1).upper() if found else None
