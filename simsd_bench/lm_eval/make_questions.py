"""Writes the questions of this folder's tasks: held-out ones of the families on which the shipped pair is trained.

It is run by `python simsd_bench/lm_eval/make_questions.py`.
"""

import json
from pathlib import Path
from typing import Any

from simsd.eval.families import FAMILIES
from simsd.eval.graders import final_number

COUNT = 20
HERE = Path(__file__).parent


def math_rows() -> list[dict[str, Any]]:
    """Return math questions; the answer is the last number of the taught answer."""
    questions = FAMILIES["math"].questions("heldout", COUNT)
    return [{"question": one.prompt, "answer": str(final_number(one.answer))} for one in questions]


def choice_rows() -> list[dict[str, Any]]:
    """Return multiple-choice questions, with each option as the sentence that answers with it.

    Questions about sums are left out, since their answers begin with the work.
    """
    asked = FAMILIES["choice"].questions("heldout", 3 * COUNT)
    questions = [one for one in asked if one.answer == f"The answer is {one.accepted}."][:COUNT]
    return [
        {
            "question": one.prompt,
            "choices": [f"The answer is {option}." for option in one.options],
            "right": one.options.index(one.accepted),
        }
        for one in questions
    ]


def lines(rows: list[dict[str, Any]]) -> str:
    assert len(rows) == COUNT
    return "".join(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    (HERE / "math.jsonl").write_text(lines(math_rows()), encoding="utf-8")
    (HERE / "choice.jsonl").write_text(lines(choice_rows()), encoding="utf-8")
