"""The people of the stories, and how sentences speak of them."""

from dataclasses import dataclass
from random import Random

from simsd.eval.families.parts import capitalised, conjugated, invented
from simsd.eval.families.words import MEN, RELATIVES, ROLES, WOMEN
from simsd.eval.question import Split


@dataclass(frozen=True)
class Person:
    """A person as a subject (`name`, later `again`) and an object (`him`), and as the answer calls them (`told`)."""

    name: str
    again: str
    him: str
    told: str
    third: bool = True

    def does(self, phrase: str, past: bool, again: bool = False) -> str:
        """Return a clause whose verb is the first word of `phrase`."""
        return f"{self.again if again else self.name} {self.verb(phrase, past)}"

    def verb(self, phrase: str, past: bool) -> str:
        return conjugated(phrase, self.third, past)

    @property
    def do(self) -> str:
        return "does" if self.third else "do"

    @property
    def has(self) -> str:
        """The beginning of an answer, such as `Tom has` or `You have`."""
        return f"{capitalised(self.told)} {'have' if self.told == 'you' else 'has'}"


INVENTED_SHARE = 0.2
"""The share of names and objects of training that are invented words."""
HIM = {"he": "him", "she": "her"}
I = Person("I", "I", "me", "you", third=False)  # noqa: E741 - the word of the sentence


def draw_name(rng: Random, split: Split, besides: str = "") -> Person:
    """Draw a person with a name other than `besides`."""
    while True:
        men = rng.random() < 0.5
        name = (MEN if men else WOMEN).draw(rng, new=split == "phrasing")
        if split == "train" and rng.random() < INVENTED_SHARE:
            name = capitalised(invented(rng))
        if name != besides:
            again = "he" if men else "she"
            return Person(name, again, HIM[again], name)


def draw_person(rng: Random, split: Split) -> Person:
    """Draw a name, and at times a role, such as `a farmer`, a relative of the speaker, or the speaker, who is `I`."""
    chance = rng.random()
    if chance < 0.12:
        role = ROLES.draw(rng, new=split == "phrasing")
        return Person(f"{rng.choice(('a', 'the'))} {role}", f"the {role}", f"the {role}", f"the {role}")
    if chance < 0.20:
        again = rng.choice(sorted(RELATIVES))
        relative = RELATIVES[again].draw(rng, new=split == "phrasing")
        return Person(f"my {relative}", again, HIM[again], f"your {relative}")
    if chance < 0.30 and split != "phrasing":
        return I
    return draw_name(rng, split)
