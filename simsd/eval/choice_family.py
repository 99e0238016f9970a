"""Multiple-choice questions with four options, whose answer is the text of an option.

Sets of options are held out; for sums, pairs of operands are.
"""

import re
from random import Random

from simsd.eval.facts import KINDS
from simsd.eval.math_family import draw_step, step
from simsd.eval.question import Family, Question, Split, held_out
from simsd.eval.trivia_family import has_words

CATEGORIES = {
    "an animal": "dog cat cow horse sheep pig goat bear duck frog".split(),
    "a fruit": "apple pear plum grape cherry peach mango melon fig lime".split(),
    "a color": "red blue green white black pink brown gray yellow purple".split(),
    "a tool": "hammer saw drill axe spade rake wrench ladder knife brush".split(),
    "a city": "Paris Rome London Madrid Berlin Tokyo Lima Oslo Cairo Vienna".split(),
    "a piece of clothing": "hat coat shoe shirt sock scarf glove dress belt boot".split(),
    "a metal": "gold silver iron copper tin zinc lead nickel steel bronze".split(),
    "a drink": "water milk tea coffee juice wine beer soda cider cocoa".split(),
}
ASKABLE = tuple(kind for kind in KINDS if kind.which)


def _in_split(rng: Random, split: Split, question: str, right: str, wrong: list[str]) -> tuple[str, ...] | None:
    """Return the options in random order, or None if this set of options does not belong to the split."""
    options = [right, *wrong]
    if held_out("choice", question, *sorted(options)) != (split == "heldout"):
        return None
    rng.shuffle(options)
    return tuple(options)


def _fact(rng: Random, split: Split) -> tuple[str, tuple[str, ...], str, str]:
    kind = rng.choice(ASKABLE)
    facts = kind.facts
    while True:
        subject, value = rng.choice(facts)
        question = kind.fill(kind.which, subject)
        others = sorted({other for _, other in facts if other not in (value, subject)})
        options = _in_split(rng, split, question, value, rng.sample(others, 3))
        if options:
            return question, options, value, ""


def _category(rng: Random, split: Split) -> tuple[str, tuple[str, ...], str, str]:
    while True:
        names = rng.sample(sorted(CATEGORIES), 4)
        right, *wrong = (rng.choice(CATEGORIES[name]) for name in names)
        question = f"Which of these is {names[0]}?"
        options = _in_split(rng, split, question, right, wrong)
        if options:
            return question, options, right, ""


def _sum(rng: Random, split: Split) -> tuple[str, tuple[str, ...], str, str]:
    op = rng.choice("+-")
    a, b = draw_step(rng, op, split)
    line, result = step(op, a, b)
    near = [result + delta for delta in (-11, -10, -2, -1, 1, 2, 10, 11) if result + delta >= 0]
    options = [str(n) for n in (result, *rng.sample(near, 3))]
    rng.shuffle(options)
    return f"Which of these is {a} {op} {b}?", tuple(options), str(result), line + "\n"


def draw(rng: Random, split: Split) -> Question:
    question, options, right, work = rng.choice((_fact, _fact, _category, _sum))(rng, split)
    prompt = f"{question} Options: {', '.join(options)}."
    return Question("choice", prompt, f"{work}The answer is {right}.", options=options, accepted=right)


def verdict(question: Question, text: str) -> bool:
    """Whether the right option and no other one is named after `answer is`, or anywhere if these words are missing."""
    said = re.split(r"answer is", text, flags=re.IGNORECASE)[-1]
    # An option may contain another one, so longer ones are searched for and removed first.
    named = []
    for option in sorted(question.options, key=len, reverse=True):
        if has_words(said, option):
            named.append(option)
            said = said.replace(option, " ")
    return named == [question.accepted]


CHOICE = Family("choice", draw, verdict)
