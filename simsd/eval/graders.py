"""Whether an answer to a question of a public data set is right, by the rules that the sets' papers use."""

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
"""Where a letter is looked for, the clearest place first; a lone A may be an article."""


def final_number(text: str) -> Decimal | None:
    """The number after the last `####`, or where there is none the last number of the text."""
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
    """GSM8K: the final numbers are equal; `reference` is the set's worked answer."""
    expected = final_number(reference)
    return expected is not None and final_number(text) == expected


def code_of(text: str) -> str:
    """The first fenced block, what stands between [BEGIN] and [DONE], or the whole text."""
    if fenced := FENCE.search(text):
        return fenced.group(1)
    return text.split("[BEGIN]")[-1].split("[DONE]")[0]


def passes_tests(text: str, setup: str, tests: Sequence[str]) -> bool:
    """MBPP: the answer's code runs, and so do all assertions after it, in the sandbox."""
    return run_program("\n".join([code_of(text), setup, *tests]))


def normalised(text: str) -> str:
    """TriviaQA's own: lower case, punctuation and articles away, single spaces."""
    kept = "".join(" " if char in string.punctuation + "‘’´`" else char for char in text.lower().replace("_", " "))
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


def names_alias(text: str, aliases: Sequence[str]) -> bool:
    """TriviaQA: the answer is one of the aliases, or contains one as whole words; both normalised."""
    said = f" {normalised(text)} "
    return any(alias and f" {alias} " in said for alias in map(normalised, aliases))


def chosen_letter(text: str) -> str | None:
    """MMLU: the letter after "answer is", one that the text begins with, one in brackets, or one that stands alone."""
    found = next((match for pattern in LETTERS if (match := pattern.search(text))), None)
    return found.group(1).upper() if found else None
