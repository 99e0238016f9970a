"""Arithmetic word problems. An answer has worked steps, one on each line, and then `#### n`.

Pairs of operands are held out, in every step.
"""

import re
from random import Random

from simsd.eval.question import Family, Question, Split, held_out

NAMES = "Tom Anna Ben Lucy Sam Mia Leo Emma Dan Nora Max Ella Ivan Ruth".split()
THINGS = "apples books coins pens cards shells stamps eggs keys cups balls stickers".split()
LIMIT = 100

ADD = (
    "{n} has {a} {t} and buys {b} more. How many {t} does {n} have now?",
    "{n} has {a} {t}. {m} has {b} {t}. How many {t} do they have together?",
    "There are {a} {t} in a box and {b} {t} on a table. How many {t} are there in total?",
    "{n} had {a} {t} and found {b} more. How many {t} does {n} have now?",
)
SUBTRACT = (
    "{n} has {a} {t} and gives away {b}. How many {t} are left?",
    "{n} had {a} {t} but lost {b}. How many {t} does {n} have now?",
    "{n} has {a} {t}. {m} has {b} {t}. How many more {t} does {n} have than {m}?",
)
MULTIPLY = (
    "There are {a} boxes with {b} {t} in each. How many {t} are there in total?",
    "{n} buys {a} bags of {b} {t}. How many {t} does {n} have now?",
)
PLAIN = {
    "+": ("What is {a} + {b}?", "What is {a} plus {b}?", "Calculate {a} + {b}."),
    "-": ("What is {a} - {b}?", "What is {a} minus {b}?", "Calculate {a} - {b}."),
    "*": ("What is {a} * {b}?", "What is {a} times {b}?", "Calculate {a} * {b}."),
}
STORIES = {"+": ADD, "-": SUBTRACT, "*": MULTIPLY}
TWO_STEPS = {
    "+-": "{n} has {a} {t}, buys {b} more and gives away {c}. How many {t} are left?",
    "-+": "{n} had {a} {t}, lost {b} and found {c} more. How many {t} does {n} have now?",
    "*+": "{n} has {a} bags of {b} {t} and finds {c} more. How many {t} does {n} have now?",
    "*-": "{n} buys {a} bags of {b} {t} and gives away {c}. How many {t} are left?",
}


def operand_pair_held_out(op: str, a: int, b: int) -> bool:
    """Whether a step belongs to the held-out split. Sums and products are held out in both orders.

    The times table up to 10 and products with tens are never held out, because other products are computed from them.
    """
    if op == "-":
        return held_out("math", op, a, b)
    low, high = sorted((a, b))
    if op == "*" and (high <= 10 or high % 10 == 0):
        return False
    return held_out("math", op, low, high)


def _splits_tens(a: int, b: int) -> tuple[int, int] | None:
    """Return the two partial products of a * b, by b's tens and ones; None if the product needs no such step."""
    return (a * (b // 10 * 10), a * (b % 10)) if b > 10 and b % 10 else None


def step(op: str, a: int, b: int) -> tuple[str, int]:
    """Return a worked step, such as `23+45=68` or `4*17=40+28=68`, and its result."""
    result = a + b if op == "+" else a - b if op == "-" else a * b
    parts = _splits_tens(a, b) if op == "*" else None
    middle = f"{parts[0]}+{parts[1]}=" if parts else ""
    return f"{a}{op}{b}={middle}{result}", result


def step_in_split(op: str, a: int, b: int, split: Split) -> bool:
    """Whether a step belongs to a split.

    A held-out step has a held-out pair. A training step has none, not even in the sum of a product's parts.
    """
    held = operand_pair_held_out(op, a, b)
    if split == "heldout":
        return held
    parts = _splits_tens(a, b) if op == "*" else None
    return not held and not (parts and operand_pair_held_out("+", *parts))


def draw_operands(rng: Random, op: str, first: int | None = None) -> tuple[int, int]:
    """Draw two operands below 100 whose difference is not negative and whose partial products are below 100.

    first: the left operand, if it is given; products draw their own.
    """
    if op == "*":
        a = rng.randint(2, 9)
        return a, rng.randint(2, min(49, (LIMIT - 1) // a // 10 * 10 + 9))
    a = rng.randint(2, LIMIT - 1) if first is None else first
    if op == "-":
        return a, rng.randint(1, max(1, a - 1))
    return a, rng.randint(2, LIMIT - 1)


def draw_step(rng: Random, op: str, split: Split, first: int | None = None) -> tuple[int, int]:
    """Draw the operands of a step of the split. `LookupError` if none is found, as may happen with a fixed `first`."""
    for _ in range(400):
        a, b = draw_operands(rng, op, first)
        if step_in_split(op, a, b, split):
            return a, b
    raise LookupError(f"no {split} step {first}{op}?")


def _draw_two_steps(rng: Random, split: Split) -> tuple[str, int, int, int]:
    ops = rng.choice(sorted(TWO_STEPS))
    while True:
        a, b = draw_step(rng, ops[0], split)
        middle = step(ops[0], a, b)[1]
        if 2 <= middle < LIMIT:
            try:
                return ops, a, b, draw_step(rng, ops[1], split, middle)[1]
            except LookupError:
                continue


def draw(rng: Random, split: Split) -> Question:
    name, other = rng.sample(NAMES, 2)
    words = {"n": name, "m": other, "t": rng.choice(THINGS)}
    if rng.random() < 0.25:
        ops, a, b, c = _draw_two_steps(rng, split)
        first, middle = step(ops[0], a, b)
        second, result = step(ops[1], middle, c)
        prompt = TWO_STEPS[ops].format(a=a, b=b, c=c, **words)
        return Question("math", prompt, f"{first}\n{second}\n#### {result}")
    op = rng.choice("++--*")
    a, b = draw_step(rng, op, split)
    templates = PLAIN[op] if rng.random() < 0.25 else STORIES[op]
    line, result = step(op, a, b)
    return Question("math", rng.choice(templates).format(a=a, b=b, **words), f"{line}\n#### {result}")


def verdict(question: Question, text: str) -> bool:
    """Whether the number after the last `####` is right. Nothing else counts."""
    found = re.findall(r"####\s*(-?\d+)(?!\d)", text)
    return bool(found) and int(found[-1]) == int(question.answer.rsplit("#### ", 1)[1])


MATH = Family("math", draw, verdict)
