"""Families of questions."""
from training.families.math_family import MATH
from training.families.trivia_family import TRIVIA
FAMILIES = {f.name: f for f in (MATH,TRIVIA)}
