"""Families of questions."""
from training.families.math_family import MATH
from training.families.trivia_family import TRIVIA
from training.families.code_family import CODE
from training.families.choice_family import CHOICE
from training.families.manners_family import MANNERS
from training.families.records_family import RECORDS
FAMILIES = {f.name: f for f in (MATH,CODE, TRIVIA, CHOICE,MANNERS,RECORDS)}
