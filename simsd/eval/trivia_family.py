"""Questions for facts, in five phrasings. For each fact one phrasing is held out, but never the plain one.

Openings before a question are held out, too.
"""

import re
from random import Random

from simsd.eval.facts import KINDS, Kind
from simsd.eval.question import Family, Question, Split

FACTS = tuple((kind, subject, value) for kind in KINDS for subject, value in kind.facts)
OPENINGS = ("", "Please tell me: ", "Question: ")
"""The openings of held-out questions, which make more questions than there are facts. Training has no openings."""
MAX_WORDS = 20


def held_out_phrasing(kind: Kind, subject: str) -> int:
    """Return the held-out phrasing of a fact, 1 to 4. They alternate, so each phrasing is trained on other facts."""
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
    """Whether `words` occur in `text` as whole words, in the same case."""
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def verdict(question: Question, text: str) -> bool:
    """Whether the answer names the fact's object and no other one of the kind, in at most `MAX_WORDS` words."""
    if len(text.split()) > MAX_WORDS or not has_words(text, question.accepted):
        return False
    rest = re.sub(rf"(?<!\w){re.escape(question.accepted)}(?!\w)", " ", text)
    return not any(has_words(rest, other) for other in question.rejected)


TRIVIA = Family("trivia", draw, verdict)
