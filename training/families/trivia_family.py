"""Questions for facts, both ways: for the capital of a country, and for the country of a capital.

A fact cannot be held out, but a way to ask for it can: one in eight of each fact's questions is.
"""

from dataclasses import dataclass
from random import Random

from simsd.eval.facts import KINDS
from simsd.eval.question import Question, held_out
from simsd.eval.trivia_family import has_words, verdict
from training.families.family import Family
from training.families.parts import Split, capitalised, expand
from training.families.surface import imperative, typed
from training.families.trivia_topics import FRAMES, TOPICS, Topic

FACTS_OF = {kind.name: kind.facts for kind in KINDS}


OWN_SHARE = 0.5


@dataclass(frozen=True)
class Fact:
    topic: Topic
    subject: str
    value: str


def facts(topic: Topic) -> tuple[Fact, ...]:
    return tuple(Fact(topic, subject, value) for subject, value in topic.facts or FACTS_OF[topic.kind])


FACTS = tuple(facts(topic) for topic in TOPICS)


def draw(rng: Random, split: Split) -> Question:
    # A topic counts by the square root of its facts, so that small topics are not rare.
    topic_facts = rng.choices(FACTS, [len(some) ** 0.5 for some in FACTS])[0]
    while True:
        fact = rng.choice(topic_facts)
        before, _, after = fact.subject.partition("|")
        words = {"s": f"{before} {after}".strip(), "o": fact.value, "a": before, "b": after}
        text = expand(rng, _template(rng, split, fact.topic)).format(**words)
        if split == "phrasing" or held_out("trivia", text) == (split == "heldout"):
            break
    prompt = capitalised(text) if text.endswith("?") else imperative(rng, text)
    accepted = fact.subject if fact.topic.asks_subject else fact.value
    others = {other.subject if fact.topic.asks_subject else other.value for other in topic_facts}
    rejected = tuple(sorted(o for o in others - {accepted} if not has_words(text, o)))
    prompt = typed(rng, split, prompt, lower=fact.topic.lower)
    answer = capitalised(fact.topic.statement.format(**words))
    # The sentence's first word has a capital, whatever the fact has.
    if not has_words(answer, accepted):
        accepted = capitalised(accepted)
    return Question("trivia", prompt, answer, accepted=accepted, rejected=rejected)


def _template(rng: Random, split: Split, topic: Topic) -> str:
    """Return a question of the topic's own, or a frame around a name of what is asked for."""
    if topic.names is None or rng.random() < OWN_SHARE:
        return topic.own.template(rng, split)
    # Of a new phrasing the frame is new or the name.
    new_frame = split == "phrasing" and rng.random() < 0.6
    frame = FRAMES.template(rng, "phrasing" if new_frame else "train")
    return frame.replace("<name>", topic.names.template(rng, "train" if new_frame else split))


TRIVIA = Family("trivia", draw, verdict)
