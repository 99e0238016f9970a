"""Multiple-choice questions with four options, whose answer is the text of an option: facts, categories and sums.

Sets of options are held out; for sums, pairs of operands are.
"""

import re
from random import Random

from simsd.eval.families.arithmetic import draw_step, step
from simsd.eval.families.facts import FACTS
from simsd.eval.families.parts import capitalised, joined, values_split, wording
from simsd.eval.families.surface import typed
from simsd.eval.families.trivia_family import has_words
from simsd.eval.question import Family, Question, Split, held_out

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
LAYOUTS = wording("""
    {q} Options: {list}.
    {q} Options: {list}.
    {q} Options: {or}.
    {q} [Choose|Choose one|Pick one]: {list}.
    {q} [Choose from|Pick from] {or}.
    {q} Is it {or}?
    {q} The options are {and}.
    {q} The choices are {and}.
    {q} ({list})
    {q0}: {list}?
    {q0}: {or}?
    Options: {list}. {q}
    [Choose from|Here are] {list}. {q}
    {lines}
    --
    You have these four to choose from: {and}. {q}
    {q} Possible answers: {list}.
    {q} One of these is right: {or}.
    From among {and}: {q}
    {list} - {q}
""")
FACT = {
    kind: wording(f"""
        Which of these is {name}?
        Which one is {name}?
        Which is {name}?
        What is {name}?
        --
        Which of the four is {name}?
        What would you choose as {name}?
    """)
    for kind, name in {
        "capital": "the capital of {s}",
        "symbol": "the chemical symbol for {s}",
        "opposite": "the opposite of {s}",
        "young": "a young {s}",
        "language": "the language spoken in {s}",
        "color": "the color of {s}",
        "author": "the author of {s}",
        "continent": "the continent of {s}",
        "known": "{s}",
    }.items()
}
CATEGORY = wording("""
    Which of these is {c}?
    Which one is {c}?
    Which word names {c}?
    Which of these words is {c}?
    Which one of these is {c}?
    --
    Which of the four is {c}?
    What would you call {c}?
    Only one is {c}, which is it?
""")
SUM = wording("""
    Which of these is {a} {op} {b}?
    What is {a} {op} {b}?
    Which number is {a} {op} {b}?
    How much is {a} {op} {b}?
    --
    Which of the four is {a} {op} {b}?
    Which number do you get for {a} {op} {b}?
""")


def _options(rng: Random, split: Split, topic: str, right: str, wrong: list[str]) -> list[str] | None:
    """Return the options in random order, or None if this set of options does not belong to the split."""
    options = [right, *wrong]
    if held_out("choice", topic, *sorted(options)) != (values_split(split) == "heldout"):
        return None
    rng.shuffle(options)
    return options


def _question_split(split: Split, new: str) -> Split:
    """Return the split of the question's words, if `new` tells which part of a new phrasing is new."""
    return "phrasing" if split == "phrasing" and new != "layout" else "train"


def _fact(rng: Random, split: Split, question: str) -> tuple[str, list[str], str, str]:
    kind = rng.choice(sorted(FACT))
    facts = FACTS[kind]
    text = FACT[kind].draw(rng, _question_split(split, question))
    while True:
        subject, value = rng.choice(facts)
        others = sorted({other for _, other in facts if other not in (value, subject)})
        options = _options(rng, split, f"{kind} {subject}", value, rng.sample(others, 3))
        if options:
            return text.format(s=subject), options, value, ""


def _category(rng: Random, split: Split, question: str) -> tuple[str, list[str], str, str]:
    text = CATEGORY.draw(rng, _question_split(split, question))
    while True:
        names = rng.sample(sorted(CATEGORIES), 4)
        right, *wrong = (rng.choice(CATEGORIES[name]) for name in names)
        options = _options(rng, split, names[0], right, wrong)
        if options:
            return text.format(c=names[0]), options, right, ""


def _sum(rng: Random, split: Split, question: str) -> tuple[str, list[str], str, str]:
    op = rng.choice("+-")
    a, b = draw_step(rng, op, values_split(split))
    _, result = step(op, a, b)
    near = [result + delta for delta in (-11, -10, -2, -1, 1, 2, 10, 11) if result + delta >= 0]
    options = [str(n) for n in (result, *rng.sample(near, 3))]
    rng.shuffle(options)
    text = SUM.draw(rng, _question_split(split, question)).format(a=a, b=b, op=op)
    return text, options, str(result), f"{a} {op} {b} = {result}. "


def draw(rng: Random, split: Split) -> Question:
    """Draw a question. In the phrasing split the layout or the question itself is new, or both are."""
    new = rng.choice(("layout", "question", "both"))
    question, options, right, work = rng.choice((_fact, _fact, _category, _sum))(rng, split, new)
    layout = LAYOUTS.draw(rng, "phrasing" if split == "phrasing" and new != "question" else "train")
    if rng.random() < 0.1 and "symbol" not in question:
        question = question.lower()
    fields = {
        "q": question,
        "q0": question.removesuffix("?"),
        "list": ", ".join(options),
        "or": joined(options, "or"),
        "and": joined(options, "and"),
        "lines": "\n".join([question, *(f"- {option}" for option in options)]),
    }
    prompt = typed(rng, split, capitalised(layout.format(**fields)), lower=False)
    return Question("choice", prompt, f"{work}The answer is {right}.", options=tuple(options), accepted=right)


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
