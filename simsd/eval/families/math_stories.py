"""Stories of somebody who has things, gains some and loses some, composed of clauses.

A clause is written as a verb in its base form and what follows it. `m:` before it makes somebody else its subject. In
clauses and questions a, b and c are the numbers, x is the number of the change, t the noun in the plural, m another
person, o the object form of the story's person, and `he` and `do` stand for this person in questions.
"""

from dataclasses import dataclass
from random import Random

from simsd.eval.families.parts import Pool, Wording, capitalised, counted, invented, plural, wording
from simsd.eval.families.people import INVENTED_SHARE, Person, draw_name, draw_person
from simsd.eval.families.words import ANIMALS, CONTAINERS, DISHES, FRUIT, THINGS
from simsd.eval.question import Split

START = wording("""
    have {a} {t}
    have {a} {t}
    have {a} {t}
    own {a} {t}
    start with {a} {t}
    buy {a} {t}
    get {a} {t}
    find {a} {t}
    --
    begin with {a} {t}
    collect {a} {t}
    order {a} {t}
""")
START_DISHES = wording("""
    make {a} {t}
    make {a} {t}
    have {a} {t}
    buy {a} {t}
    have {a} {t} in the kitchen
    --
    prepare {a} {t}
    order {a} {t}
""")
START_GROUPS = wording("""
    have {a} {g} of {b} {t}
    buy {a} {g} of {b} {t}
    have {a} {g} with {b} {t} each
    get {a} {g} with {b} {t} in each
    --
    own {a} {g} that hold {b} {t} each
    order {a} {g} of {b} {t}
""")
LOSE = wording("""
    give away {x}
    give [{x}|{x}|{x} of them|{x} {t}] to {m}
    give [{x}|{x}|{x} of them|{x} {t}] to [a friend|the neighbors|a sister|a brother|a school|the teacher|some friends]
    give {m} [{x}|{x}|{x} of them|{x} {t}]
    lose [{x}|{x}|{x} of them|{x} {t}]
    sell [{x}|{x}|{x} of them|{x} {t}]
    use [{x}|{x}|{x} of them|{x} {t}]
    break [{x}|{x}|{x} of them|{x} {t}]
    sell [{x}|{x}|{x} of them|{x} {t}] to {m}
    drop {x}
    throw away {x}
    [throw {x} away|give {x} away|lose {x} in the park|lose {x} on the way]
    leave {x} at [home|school|work]
    hand [{x}|{x}|{x} of them|{x} {t}] to {m}
    lend [{x}|{x}|{x} of them|{x} {t}] to {m}
    send [{x}|{x}|{x} of them|{x} {t}] to {m}
    m: take {x}[| of them]
    m: borrow {x} of them
    --
    donate {x}
    part with {x} of them
    mail {x} to {m}
    pass {x} on to {m}
    misplace {x}
    m: carry off {x} of them
""")
LOSE_FOOD = wording("""
    eat [{x}|{x}|{x} of them|{x} {t}]
    eat [{x}|{x}|{x} of them|{x} {t}]
    eat {x} for [breakfast|lunch|dinner]
    give away {x}
    drop {x}
    sell {x}
    sell {x} of them
    give {x} to [{m}|the children|the guests|a friend]
    share {x} with friends
    m: eat {x}[| of them]
    m: take {x}[| of them]
    --
    serve {x} to visitors
    chew up {x}
    part with {x} of them
    m: swallow {x} of them
""")
LOSE_ANIMALS = wording("""
    sell {x}
    sell {x} of them
    sell [{x}|{x}|{x} of them|{x} {t}] to {m}
    give away {x}
    give {x} to [{m}|a friend|a farm|the neighbors]
    lose {x}
    m: buy {x} of them
    m: take {x} of them
    --
    donate {x}
    part with {x} of them
    pass {x} on to {m}
""")
GAIN = wording("""
    buy [{x} more|{x} more|another {x}|{x} more {t}|{x} extra {t}|{x} new {t}]
    find [{x} more|{x} more|another {x}|{x} more {t}]
    get [{x} more|{x} more|another {x}|{x} more {t}|{x} for a birthday]
    get {x} more from {m}
    get [{x}|{x} {t}] from {m}
    receive {x} more from [{m}|a friend|an uncle]
    win {x} more
    add {x} more
    bring home {x} more
    m: give {o} {x} more
    m: give {o} another {x}
    m: bring {o} {x} more
    --
    obtain {x} more
    collect {x} more
    pick up {x} more
    borrow another {x} from {m}
    m: hand {o} {x} more
""")
GAIN_DISHES = wording("""
    [make|bake] [{x} more|another {x}|{x} more {t}]
    buy [{x} more|{x} more|another {x}|{x} more {t}|{x} extra {t}|{x} new {t}]
    get {x} more from {m}
    m: bring {o} {x} more
    m: make {x} more for {o}
    --
    fetch {x} more from the shop
    m: cook {x} more for {o}
""")
GAIN_ANIMALS = wording("""
    buy [{x} more|{x} more|another {x}|{x} more {t}|{x} extra {t}|{x} new {t}]
    get [{x} more|{x} more|another {x}|{x} more {t}|{x} for a birthday]
    get {x} more from {m}
    receive {x} more from [{m}|a friend|an uncle]
    find [{x} more|{x} more|another {x}|{x} more {t}]
    m: give {o} {x} more
    m: sell {o} {x} more
    --
    obtain {x} more
    raise {x} more
    m: hand over {x} more to {o}
""")

ASK_LEFT = wording("""
    how many {t} {do} {he} have left?
    how many {t} are left?
    how many are left?
    how many {t} {do} {he} still have?
    how many {t} remain?
    how many remain?
    find the number of {t} that are left.
    tell me how many {t} are left.
    --
    how many {t} {do} {he} get to keep?
    what number of {t} is left over?
    say how many {t} remain in the end.
""")
ASK_TOTAL = wording("""
    how many {t} {do} {he} have [in total|altogether|in all]?
    how many {t} {do} {he} have now in total?
    how many {t} are there [in total|altogether]?
    what is the total number of {t}?
    find the total number of {t}.
    --
    how many {t} {do} {he} have overall?
    what do all the {t} add up to?
    say how many {t} that makes in total.
""")
ASK_NOW = wording("""
    how many {t} {do} {he} have now?
    how many {t} {do} {he} have?
    how many {t} {do} {he} have at the end?
    tell me how many {t} {he} {has} now.
    --
    how many {t} {do} {he} end up with?
    what number of {t} {do} {he} have by now?
    how many {t} {do} {he} have after that?
""")

JOINS_ONE = wording("""
    {S}. {C}. {Q}
    {S}. {C}. {Q}
    {S} and {c}. {Q}
    {S} and {c}. {Q}
    {S}, and then {c}. {Q}
    {S}. Then {c2}. {Q}
    If {s} and {c}, {q}
    When {s} and {c}, {q}
    {Q} {S} and {c}.
    --
    {Q0} if {s} and {c}{mark}
    Suppose {s} and {c}. {Q}
    {S}. Later {c2}. {Q}
    Imagine that {s}. Now {c2}. {Q}
""")
JOINS_TWO = wording("""
    {S}. {C}. Then {d2}. {Q}
    {S}. {C} and {d}. {Q}
    {S}, {c} and {d}. {Q}
    {S}, {c}, and then {d}. {Q}
    {S} and {c}. Then {d2}. {Q}
    If {s}, {c} and {d}, {q}
    --
    {Q0} if {s}, {c} and {d}{mark}
    Suppose {s}. First {c2}, after that {d2}. {Q}
    {S}. On Monday {c2}, and on Tuesday {d2}. {Q}
""")


@dataclass(frozen=True)
class Goods:
    """What people have, with the clauses that fit it, and how often it is drawn."""

    pool: Pool
    start: Wording
    lose: Wording
    gain: Wording
    weight: int


GOODS = (
    Goods(THINGS, START, LOSE, GAIN, 8),
    Goods(FRUIT, START, LOSE_FOOD, GAIN, 3),
    Goods(DISHES, START_DISHES, LOSE_FOOD, GAIN_DISHES, 2),
    Goods(ANIMALS, START, LOSE_ANIMALS, GAIN_ANIMALS, 1),
)


@dataclass(frozen=True)
class Story:
    """A prompt whose numbers are still the fields a, b and c, and what its answer needs."""

    prompt: str
    person: Person
    noun: str
    ending: str

    def conclusion(self, result: int) -> str:
        return f"{self.person.has} {counted(result, self.noun)} {self.ending}."


def draw_goods(rng: Random, split: Split) -> tuple[Goods, str]:
    """Draw goods and one of their nouns."""
    goods = rng.choices(GOODS, [goods.weight for goods in GOODS])[0]
    if split == "train" and rng.random() < INVENTED_SHARE:
        return goods, invented(rng)
    return goods, goods.pool.draw(rng, new=split == "phrasing")


def draw_story(rng: Random, split: Split, ops: str) -> Story:
    """Draw a story of one or two steps. `*` at first stands for a start with groups."""
    groups, changes = ops[0] == "*", ops.removeprefix("*")
    new = _new_parts(rng, changes) if split == "phrasing" else set()
    splits: dict[str, Split] = {part: "phrasing" if part in new else "train" for part in PARTS}
    person, past = draw_person(rng, split), rng.random() < 0.35
    other = draw_name(rng, split, besides=person.name)
    goods, noun = draw_goods(rng, split)
    fields = {
        "a": "{a}", "b": "{b}", "t": plural(noun), "m": other.name, "o": person.him, "do": person.do,
        "has": person.verb("have", past=False), "g": plural(CONTAINERS.draw(rng, new=split == "phrasing")),
    }  # fmt: skip
    join = (JOINS_TWO if len(changes) == 2 else JOINS_ONE).draw(rng, splits["join"])
    question_first = join.startswith("{Q")
    fields["he"] = (
        person.name if question_first or (rng.random() < 0.4 and person.again in ("he", "she")) else person.again
    )
    ask, ending = _question(rng, changes, decisive="verbs" in new)
    question = ask.draw(rng, splits["question"]).format(**fields)

    start = (START_GROUPS if groups else goods.start).draw(rng, splits["verbs"]).format(**fields)
    said = {
        "s": person.does(start, past, again=question_first and person.name in question),
        "q": question,
        "q0": question[:-1],
    }
    for letter, op, number in zip("cd", changes, "cd" if groups else "bc", strict=False):
        clause = _change(rng, goods, op, splits["verbs"], others=len(changes) == 1)
        theirs, clause = clause.startswith("m: "), clause.removeprefix("m: ").format(x=f"{{{number}}}", **fields)
        said[f"{letter}2"] = other.does(clause, past) if theirs else person.does(clause, past, again=True)
        said[letter] = said[f"{letter}2"] if theirs else person.verb(clause, past)
    said |= {letter.upper(): capitalised(said[letter]) for letter in ("s", "q")} | {"Q0": capitalised(said["q0"])}
    said["C"] = capitalised(said["c2"])
    return Story(join.format(mark=question[-1], **said), person, noun, ending)


PARTS = ("join", "verbs", "question")


def _new_parts(rng: Random, changes: str) -> set[str]:
    """Choose what is new in a story of the phrasing split: one of the parts, and the join in half of the other cases.

    Two new verbs would leave open which of them gains, so a story with two changes has none.
    """
    return {rng.choice(PARTS if len(changes) == 1 else ("join", "question"))} | set(PARTS[: rng.randrange(2)])


def _change(rng: Random, goods: Goods, op: str, split: Split, others: bool) -> str:
    while True:
        clause = (goods.gain if op == "+" else goods.lose).draw(rng, split)
        if others or not clause.startswith("m: "):
            return clause


def _question(rng: Random, changes: str, decisive: bool) -> tuple[Wording, str]:
    """Choose how to ask, and how the answer ends. decisive: the question must tell whether things were lost."""
    if not decisive and (changes == "-+" or rng.random() < 0.3):
        return ASK_NOW, "now"
    return (ASK_TOTAL, "in total") if changes[-1] == "+" else (ASK_LEFT, "left")
