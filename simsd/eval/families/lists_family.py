"""Prompts with 3 to 12 numbered questions of other families. The answer has all answers, numbered, in order.

These are the answers that are long enough to measure speed on: 60 to 250 tokens that are all part of the answer.
"""

import math
import re
from dataclasses import dataclass
from random import Random

from simsd.eval.families.choice_family import CHOICE
from simsd.eval.families.code_family import CODE
from simsd.eval.families.math_family import MATH
from simsd.eval.families.parts import in_words, wording
from simsd.eval.families.records_family import RECORDS
from simsd.eval.families.surface import CLOSINGS, OPENINGS
from simsd.eval.families.trivia_family import TRIVIA
from simsd.eval.question import Family, Question, Split

PARTS = (3, 12)
PROMPT_TOKENS, ANSWER_TOKENS = 145, (80, 205)
"""Limits of the estimates, from which true numbers of tokens differ by up to a third."""
HEADER_TOKENS, MARK_TOKENS = 12, 4
FEW, MANY = 5, 9
TRIES = 10
SHARES = {MATH: 0.42, TRIVIA: 0.32, CHOICE: 0.12, CODE: 0.10, RECORDS: 0.04}
SHORTEST = (MATH, TRIVIA)
BY_NAME = {family.name: family for family in SHARES}

HEADERS = wording("""
    Answer these [|{n} ]questions[:|.]
    Answer [the following|all of the following|all of these] [|{n} ]questions[:|.]
    Please answer [these|the following] [|{n} ]questions[:|.]
    [I have|Here are] {n} questions[:|.]
    [I have|Here are] {n} questions. Answer [all of them|them in order|each of them].
    Solve these [|{n} ]tasks[:|.]
    Do [these|the following] [|{n} ]tasks[:|.]
    [Can|Could] you answer these [|{n} ]questions?
    Questions:
    Answer in order:
    Give me a numbered list of answers.
    --
    Go through this list and reply to each point.
    A quiz with {n} questions:
    Reply to everything here, one after the other.
    My test has these [|{n} ]tasks, what are the solutions?
    What would you answer to these {n}?
""")
MARKS = wording("{i}.\n {i}.\n {i})\n--\n ({i})\n {i}:")


@dataclass(frozen=True)
class ListQuestion(Question):
    """A prompt that asks several questions, which are its parts."""

    parts: tuple[Question, ...] = ()


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text for a byte-level BPE with some hundred merges.

    Drawing does not depend on a tokenizer, since the pair's own is trained on what is drawn here.
    """
    words = re.findall(r"[A-Za-z]+|[^A-Za-z\s]|\n", text)
    return sum(1 if word in _COMMON else math.ceil(len(word) / 2.4) for word in words)


_COMMON = frozenset(
    "return result append item The the capital continent language symbol answer chemical opposite called young spoken "
    "total What what Which which that many have has more How how does there are from with function Write Python "
    "number list color these Options There That comes after before".split()
)


def draw(rng: Random, split: Split) -> ListQuestion:
    tries = n = 0
    while True:
        # Many questions seldom fit, so a number of them is tried again before another one is drawn.
        n = n if tries % TRIES else rng.randint(*PARTS)
        tries += 1
        parts = _draw_parts(rng, split, n)
        if parts is None:
            continue
        header = HEADERS.draw(rng, split).format(n=in_words(n) if rng.random() < 0.5 else n)
        mark = MARKS.draw(rng, split)
        lines = [f"{mark.format(i=i)} {part.prompt}" for i, part in enumerate(parts, start=1)]
        prompt = "\n".join([header, *lines] if split == "phrasing" or rng.random() < 0.9 else lines)
        answer = "\n".join(f"{i}. {part.answer}" for i, part in enumerate(parts, start=1))
        low, high = ANSWER_TOKENS
        if estimated_tokens(prompt) <= PROMPT_TOKENS and low <= estimated_tokens(answer) <= high:
            return ListQuestion("lists", prompt, answer, parts=tuple(parts))


def _draw_parts(rng: Random, split: Split, n: int) -> list[Question] | None:
    """Draw n different questions; None if their prompts are too long together.

    Of a few questions for each place short lists take the longest answer, and long ones the shortest prompt.
    """
    left = PROMPT_TOKENS - HEADER_TOKENS
    parts: dict[str, Question] = {}
    for i in range(n):
        family = rng.choices(list(SHARES), list(SHARES.values()))[0]
        if n >= MANY and family not in SHORTEST:
            family = rng.choice(SHORTEST)
        # Twelve prompts have to be very short, so many are drawn for each place.
        candidates = [family.draw(rng, split) for _ in range(4 + n // 2 if n < MANY else 5 * (n - FEW))]
        candidates = [q for q in candidates if _fits_a_line(q.prompt) and not q.tools and q.prompt not in parts]
        if n <= FEW:
            room = left / (n - i) - MARK_TOKENS
            candidates = [q for q in candidates if estimated_tokens(q.prompt) <= room]
        if not candidates:
            return None
        if n <= FEW:
            part = max(candidates, key=lambda question: len(question.answer))
        else:
            part = min(candidates, key=lambda question: len(question.prompt))
        left -= estimated_tokens(part.prompt) + MARK_TOKENS
        if left < 0:
            return None
        parts[part.prompt] = part
    return list(parts.values())


def _fits_a_line(prompt: str) -> bool:
    """Whether a prompt is one line without an opening or a closing."""
    openings, closings = OPENINGS.taught + OPENINGS.kept, CLOSINGS.taught + CLOSINGS.kept
    return "\n" not in prompt and not prompt.startswith(openings) and not prompt.endswith(closings)


def parts_right(question: ListQuestion, text: str) -> list[bool]:
    """Whether each part has a right answer in its place. A number out of order makes all that follow wrong."""
    before, *numbered = re.split(r"^(\d+)\. ", text, flags=re.MULTILINE)
    if before.strip():
        return [False] * len(question.parts)
    numbers, answers = numbered[::2], numbered[1::2]
    in_order = 0
    while in_order < len(numbers) and numbers[in_order] == str(in_order + 1):
        in_order += 1
    return [i < in_order and BY_NAME[part.family].check(part, answers[i]) for i, part in enumerate(question.parts)]


def verdict(question: Question, text: str) -> bool:
    """Whether all parts are right, and there are no further ones."""
    assert isinstance(question, ListQuestion)
    numbers = re.findall(r"^(\d+)\. ", text, flags=re.MULTILINE)
    return len(numbers) == len(question.parts) and all(parts_right(question, text))


LISTS = Family("lists", draw, verdict, parts_right)
