"""Questions for facts, both ways: for the capital of a country, and for the country of a capital.

A fact cannot be held out, but a way to ask for it can: one in eight of each fact's questions is.
"""

import re
from dataclasses import dataclass
from random import Random

from simsd.eval.families.facts import FACTS
from simsd.eval.families.parts import capitalised, expand
from simsd.eval.families.surface import imperative, typed
from simsd.eval.families.trivia_topics import FRAMES, TOPICS, Topic
from simsd.eval.question import Family, Question, Split, held_out

MAX_WORDS = 20
OWN_SHARE = 0.5


@dataclass(frozen=True)
class Fact:
    topic: Topic
    subject: str
    value: str

    @property
    def words(self) -> dict[str, str]:
        """What the templates' fields stand for."""
        before, _, after = self.subject.partition("|")
        return {"s": f"{before} {after}".strip(), "o": self.value, "a": before, "b": after}

    @property
    def statement(self) -> str:
        return capitalised(self.topic.statement.format(**self.words))

    @property
    def asked(self) -> str:
        """What a question asks for, as it stands in the statement, whose first word has a capital."""
        asked = self.subject if self.topic.asks_subject else self.value
        return asked if has_words(self.statement, asked) else capitalised(asked)


def facts(topic: Topic) -> tuple[Fact, ...]:
    """Return a topic's facts. Where the subject is asked for, only the first subject of each value is taught."""
    found = [Fact(topic, subject, value) for subject, value in topic.facts or FACTS[topic.kind]]
    if topic.asks_subject:
        first = {fact.value: fact for fact in reversed(found)}
        found = [fact for fact in found if first[fact.value] is fact]
    return tuple(found)


TOPIC_FACTS = tuple(facts(topic) for topic in TOPICS)


def draw(rng: Random, split: Split) -> Question:
    # A topic counts by the square root of its facts, so that small topics are not rare.
    topic_facts = rng.choices(TOPIC_FACTS, [len(some) ** 0.5 for some in TOPIC_FACTS])[0]
    while True:
        fact = rng.choice(topic_facts)
        text = expand(rng, template(rng, split, fact.topic)).format(**fact.words)
        if split == "phrasing" or held_out("trivia", text) == (split == "heldout"):
            break
    prompt = capitalised(text) if text.endswith("?") else imperative(rng, text)
    others = {other.subject if fact.topic.asks_subject else other.value for other in topic_facts}
    rejected = tuple(sorted(o for o in others - {fact.subject, fact.value} if not has_words(text, o)))
    prompt = typed(rng, split, prompt, lower=fact.topic.lower)
    return Question("trivia", prompt, fact.statement, accepted=fact.asked, rejected=rejected)


def template(rng: Random, split: Split, topic: Topic) -> str:
    """Return a question of the topic's own, or a frame around a name of what is asked for."""
    if topic.names is None or rng.random() < OWN_SHARE:
        return topic.own.template(rng, split)
    # Of a new phrasing the frame is new or the name.
    new_frame = split == "phrasing" and rng.random() < 0.6
    frame = FRAMES.template(rng, "phrasing" if new_frame else "train")
    return frame.replace("<name>", topic.names.template(rng, "train" if new_frame else split))


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
