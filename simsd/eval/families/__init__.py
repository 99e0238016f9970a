"""The families of questions on which the shipped pair is trained and evaluated, in many wordings.

    python -m simsd.eval.families --family math --n 20 --split phrasing

prints questions for people to read. Nothing here imports torch.
"""

from simsd.eval.families.choice_family import CHOICE
from simsd.eval.families.code_family import CODE
from simsd.eval.families.lists_family import LISTS, ListQuestion, parts_right
from simsd.eval.families.manners_family import MANNERS
from simsd.eval.families.math_family import MATH
from simsd.eval.families.records_family import RECORDS
from simsd.eval.families.trivia_family import TRIVIA
from simsd.eval.question import Family, Question, Split

__all__ = ["FAMILIES", "Family", "ListQuestion", "Question", "Split", "parts_right"]

FAMILIES: dict[str, Family] = {f.name: f for f in (MATH, CODE, TRIVIA, CHOICE, RECORDS, LISTS, MANNERS)}
