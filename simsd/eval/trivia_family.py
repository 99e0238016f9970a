"""Facts with five phrasings. One of the five is held out for each fact, never the plain one; so are openings."""

import re
from random import Random

from simsd.eval.facts import KINDS, Kind
from simsd.eval.question import Family, Question, Split

FACTS = tuple((kind, subject, value) for kind in KINDS for subject, value in kind.facts)
OPENINGS = ("", "Please tell me: ", "Question: ")
"""What may stand before a held-out question; training has none. So there are more questions than facts."""
MAX_WORDS = 20


def held_out_phrasing(kind: Kind, subject: str) -> int:
    """1 to 4: spread over the facts of a kind, so that each phrasing is trained on the other facts."""
    return 1 + [fact[0] for fact in kind.facts].index(subject) % 4


def draw(rng: Random, split: Split) -> Question:
    kind, subject, value = rng.choice(FACTS)
    held = held_out_phrasing(kind, subject)
    index = held if split == "heldout" else rng.choice([i for i in range(5) if i != held])
    opening = rng.choice(OPENINGS) if split == "heldout" else ""
    prompt = opening + kind.fill(kind.phrasings[index], subject)
    rejected = sorted({other for _, other in kind.facts if other != value and not has_words(prompt, other)})
    return Question(
        "trivia", prompt, kind.fill(kind.statement, subject, value), accepted=value, rejected=tuple(rejected)
    )


def has_words(text: str, words: str) -> bool:
    """Whether `words` occur in `text` as whole words, case as written."""
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def verdict(question: Question, text: str) -> bool:
    """The fact's object is there, no other object of the kind is, and the answer is a sentence, not a list."""
    if len(text.split()) > MAX_WORDS or not has_words(text, question.accepted):
        return False
    rest = re.sub(rf"(?<!\w){re.escape(question.accepted)}(?!\w)", " ", text)
    return not any(has_words(rest, other) for other in question.rejected)


TRIVIA = Family("trivia", draw, verdict)
