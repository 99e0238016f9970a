"""A few turns of manners, and questions far outside of what the pair can do, which it says."""

from random import Random

from simsd.eval.graders import normalised
from simsd.eval.question import Question, held_out
from training.families.family import Family
from training.families.manners_templates import OUTSIDE, OUTSIDE_WORDS, REPLIES, TURNS
from training.families.parts import Split, capitalised, expand
from training.families.people import draw_name
from training.families.surface import typed

OUTSIDE_SHARE = 0.6


def draw(rng: Random, split: Split) -> Question:
    kind = "outside" if rng.random() < OUTSIDE_SHARE else rng.choice(sorted(TURNS))
    while True:
        words = {name: pool.draw(rng, new=split == "phrasing") for name, pool in OUTSIDE_WORDS.items()}
        words["name"] = draw_name(rng, split).name
        wording = OUTSIDE if kind == "outside" else TURNS[kind]
        text = expand(rng, wording.template(rng, split)).format(**words)
        if split == "phrasing" or held_out("manners", normalised(text)) == (split == "heldout"):
            break
    return Question("manners", _as_typed(rng, split, kind, capitalised(text)), REPLIES[kind])


def _as_typed(rng: Random, split: Split, kind: str, text: str) -> str:
    """Questions may have openings and closings; a greeting or thanks has none of these."""
    if kind in ("outside", "abilities", "self"):
        return typed(rng, split, text)
    chance = rng.random()
    if chance < 0.5:
        return text
    if chance < 0.7:
        return text.rstrip(".!?")
    return text.lower() if chance < 0.85 else text.lower().rstrip(".!?")


def verdict(question: Question, text: str) -> bool:
    """Whether the text is the reply that is taught for this kind of turn, but for punctuation, case and articles."""
    return normalised(text) == normalised(question.answer)


MANNERS = Family("manners", draw, verdict)
