"""Families of questions for the next training of the pair, in many wordings, some of which training never sees.

    python -m training.families --family math --n 20 --split phrasing

prints questions for people to read. Nothing here imports torch.
"""

from training.families.choice_family import CHOICE
from training.families.code_family import CODE
from training.families.family import Family
from training.families.lists_family import LISTS, ListQuestion, parts_right
from training.families.manners_family import MANNERS
from training.families.math_family import MATH
from training.families.parts import Split
from training.families.records_family import RECORDS
from training.families.trivia_family import TRIVIA

__all__ = ["FAMILIES", "Family", "ListQuestion", "Split", "parts_right"]

FAMILIES: dict[str, Family] = {f.name: f for f in (MATH, CODE, TRIVIA, CHOICE, RECORDS, LISTS, MANNERS)}
