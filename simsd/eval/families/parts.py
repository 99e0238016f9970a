"""The parts of which prompts are composed, and the rule that keeps some of them out of training."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal

from simsd.eval.question import Split, held_out

ValuesSplit = Literal["train", "heldout"]

ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")


def values_split(split: Split) -> ValuesSplit:
    """Return the split from which a question takes its values: new phrasings are asked about values of training."""
    return "heldout" if split == "heldout" else "train"


def expand(rng: Random, template: str) -> str:
    """Choose one of each `[a|b|c]` of a template, the innermost brackets first."""
    while match := ALTERNATIVES.search(template):
        template = template[: match.start()] + rng.choice(match[1].split("|")) + template[match.end() :]
    return template


@dataclass(frozen=True)
class Wording:
    """Ways to say one thing, as templates. Training draws those in `taught`, the phrasing split those in `kept`."""

    taught: tuple[str, ...]
    kept: tuple[str, ...]

    def template(self, rng: Random, split: Split) -> str:
        """Draw a template, with its alternatives still in it."""
        return rng.choice(self.kept if split == "phrasing" else self.taught)

    def draw(self, rng: Random, split: Split) -> str:
        return expand(rng, self.template(rng, split))


def wording(text: str) -> Wording:
    """Read a `Wording` from text with a template on each line; those after the line `--` are kept from training."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    middle = lines.index("--")
    return Wording(tuple(lines[:middle]), tuple(lines[middle + 1 :]))


@dataclass(frozen=True)
class Pool:
    """Words of one kind. A hash keeps one in eight, or those named in `kept_words`, from training."""

    words: tuple[str, ...]
    kept_words: tuple[str, ...] = ()

    @cached_property
    def kept(self) -> tuple[str, ...]:
        return self.kept_words or tuple(word for word in self.words if held_out("word", word))

    @cached_property
    def taught(self) -> tuple[str, ...]:
        kept = set(self.kept)
        return tuple(word for word in self.words if word not in kept)

    def draw(self, rng: Random, new: bool) -> str:
        """Draw a word that training never sees if `new`, or else one that it sees."""
        return rng.choice(self.kept if new else self.taught)


_ONSETS = "b bl br c ch d dr f fl g gl h j k kl l m n p pl r s sh sl st t tr v w z".split()
_NUCLEI = "a e i o u a e i o ai ee oo".split()
_ENDS = "b ck d g l ll m n nd nt p r rk s sk t x".split()


def invented(rng: Random) -> str:
    """Return a word of one to three syllables that does not exist, so that copying an unknown word is learnt."""
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_NUCLEI) + (rng.choice(_ENDS) if rng.random() < 0.5 else "")
        for _ in range(rng.randint(1, 3))
    )


def pool(text: str, kept: str = "") -> Pool:
    """Read a `Pool` of words that are separated by commas."""
    return Pool(_words(text), _words(kept))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.replace("\n", ",").split(",") if word.strip())


_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n: int) -> str:
    """Return a number of 0 to 99 in words."""
    if not 0 <= n <= 99:
        raise ValueError(f"only 0 to 99 are said in words, not {n}")
    if n < 20:
        return _ONES[n]
    return _TENS[n // 10 - 2] + (f"-{_ONES[n % 10]}" if n % 10 else "")


_PLURALS = {
    "knife": "knives", "leaf": "leaves", "loaf": "loaves", "scarf": "scarves", "shelf": "shelves", "goose": "geese",
    "tomato": "tomatoes", "potato": "potatoes", "sheep": "sheep", "fish": "fish", "child": "children",
    "mango": "mangoes", "sandwich": "sandwiches", "toothbrush": "toothbrushes",
}  # fmt: skip


def plural(noun: str) -> str:
    """Return the plural of a noun, of whose words the last one changes."""
    before, blank, last = noun.rpartition(" ")
    if last not in _PLURALS:
        if last.endswith(("s", "x", "ch", "sh")):
            last += "es"
        elif last.endswith("y") and last[-2] not in "aeiou":
            last = last[:-1] + "ies"
        else:
            last += "s"
    return before + blank + _PLURALS.get(last, last)


def counted(n: int, noun: str) -> str:
    """Return a number in digits with its noun, such as `1 coin` or `17 coins`."""
    return f"{n} {noun if n == 1 else plural(noun)}"


_PAST = dict(
    row.split(":")
    for row in (
        "break:broke have:had give:gave lose:lost sell:sold drop:dropped throw:threw eat:ate buy:bought find:found "
        "get:got win:won "
        "begin:began hold:held hand:handed take:took lend:lent make:made pick:picked feed:fed spend:spent keep:kept "
        "pay:paid bring:brought come:came see:saw swap:swapped drink:drank run:ran leave:left"
    ).split()
)


def conjugated(phrase: str, third: bool, past: bool) -> str:
    """Put the first word of a phrase, a verb such as `give`, into the past, or into the present's third person."""
    verb, blank, rest = phrase.partition(" ")
    if past:
        verb = _PAST.get(verb) or (verb + "d" if verb.endswith("e") else _ied(verb) + "ed")
    elif third:
        verb = "has" if verb == "have" else _third(verb)
    return verb + blank + rest


def _ied(verb: str) -> str:
    return verb[:-1] + "i" if verb.endswith("y") and verb[-2] not in "aeiou" else verb


def _third(verb: str) -> str:
    return _ied(verb) + ("es" if verb.endswith(("s", "x", "ch", "sh", "o")) or _ied(verb) != verb else "s")


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def joined(items: Iterable[str], last: str) -> str:
    """Return `a, b and c`, with `last` for `and`."""
    *first, end = items
    return f"{', '.join(first)} {last} {end}" if first else end
