"""Steps of arithmetic: which pairs of operands are held out, and how a step is worked."""

from random import Random

from simsd.eval.families.parts import ValuesSplit
from simsd.eval.question import held_out

LIMIT = 100


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


def step_in_split(op: str, a: int, b: int, split: ValuesSplit) -> bool:
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


def draw_step(rng: Random, op: str, split: ValuesSplit, first: int | None = None) -> tuple[int, int]:
    """Draw the operands of a step of the split. `LookupError` if none is found, as may happen with a fixed `first`."""
    for _ in range(400):
        a, b = draw_operands(rng, op, first)
        if step_in_split(op, a, b, split):
            return a, b
    raise LookupError(f"no {split} step {first}{op}?")
