"""A few turns of manners, and questions far outside of what the pair can do, which it says."""

from random import Random

from simsd.eval.families.manners_templates import OUTSIDE, OUTSIDE_WORDS, REPLIES, TURNS, UNKNOWN
from simsd.eval.families.parts import capitalised, expand, invented
from simsd.eval.families.people import draw_name
from simsd.eval.families.surface import typed
from simsd.eval.families.trivia_family import template
from simsd.eval.families.trivia_topics import TOPICS
from simsd.eval.graders import normalised
from simsd.eval.question import Family, Question, Split, held_out

SHARES = {"outside": 0.48, "unknown": 0.14, "turn": 0.38}
UNKNOWN_TOPICS = [topic for topic in TOPICS if topic.name in ("capital", "language", "continent")]


def draw(rng: Random, split: Split) -> Question:
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    if kind == "turn":
        kind = rng.choice(sorted(TURNS))
    while True:
        words = {name: pool.draw(rng, new=split == "phrasing") for name, pool in OUTSIDE_WORDS.items()}
        words["name"] = draw_name(rng, split).name
        if kind == "unknown":
            text = _unknown(rng, split)
        else:
            text = (OUTSIDE if kind == "outside" else TURNS[kind]).draw(rng, split).format(**words)
        if split == "phrasing" or held_out("manners", normalised(text)) == (split == "heldout"):
            break
    return Question(
        "manners", _as_typed(rng, split, kind, capitalised(text)), REPLIES[kind if kind != "unknown" else "outside"]
    )


def _unknown(rng: Random, split: Split) -> str:
    """Ask for a fact of a country that is not among the facts, or does not exist."""
    new = split == "phrasing"
    country = UNKNOWN.draw(rng, new) if new or rng.random() < 0.6 else capitalised(invented(rng))
    return expand(rng, template(rng, split, rng.choice(UNKNOWN_TOPICS))).format(s=country)


def _as_typed(rng: Random, split: Split, kind: str, text: str) -> str:
    """Questions may have openings and closings; a greeting or thanks has none of these."""
    if kind in ("outside", "unknown", "abilities", "self"):
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
