"""The facts that trivia and multiple-choice questions ask for."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Kind:
    """Facts of one form.

    phrasings: questions; the first one is the plain one and always in training. statement: the answer. which: the
    multiple-choice question, empty if there is none. table: the facts, as "subject:object". In the templates {s} is the
    subject and {o} the object; {a} and {b} are the halves of a subject that is written with a bar.
    """

    name: str
    phrasings: tuple[str, str, str, str, str]
    statement: str
    which: str
    table: str

    @cached_property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The facts as (subject, object), in the order of the table."""
        rows = (row.split(":") for row in self.table.replace("\n", ",").split(",") if row.strip())
        return tuple((subject.strip(), value.strip()) for subject, value in rows)

    def fill(self, template: str, subject: str, value: str = "") -> str:
        """Fill in the placeholders of a template, and capitalise its first letter."""
        a, _, b = subject.partition("|")
        text = template.format(s=f"{a} {b}".strip(), a=a, b=b, o=value)
        return text[0].upper() + text[1:]


_OPPOSITES = (
    "hot:cold, big:small, fast:slow, happy:sad, light:dark, old:young, up:down, full:empty, rich:poor, "
    "hard:soft, wet:dry, open:closed, high:low, strong:weak"
)


def _both_ways(table: str) -> str:
    pairs = [row.strip().split(":") for row in table.split(",")]
    return ",".join([f"{a}:{b}" for a, b in pairs] + [f"{b}:{a}" for a, b in pairs])


KINDS = (
    Kind(
        "capital",
        (
            "What is the capital of {s}?",
            "Name the capital of {s}.",
            "Which city is the capital of {s}?",
            "Tell me the capital city of {s}.",
            "Do you know the capital of {s}?",
        ),
        "The capital of {s} is {o}.",
        "Which of these is the capital of {s}?",
        """France:Paris, Spain:Madrid, Italy:Rome, Germany:Berlin, Portugal:Lisbon, Austria:Vienna, Greece:Athens
        Poland:Warsaw, Norway:Oslo, Sweden:Stockholm, Finland:Helsinki, Denmark:Copenhagen, Ireland:Dublin
        England:London, Russia:Moscow, Turkey:Ankara, Egypt:Cairo, Kenya:Nairobi, Ghana:Accra, Japan:Tokyo
        China:Beijing, India:Delhi, Korea:Seoul, Thailand:Bangkok, Vietnam:Hanoi, Iran:Tehran, Iraq:Baghdad
        Canada:Ottawa, Cuba:Havana, Peru:Lima, Chile:Santiago, Hungary:Budapest, Belgium:Brussels
        Bulgaria:Sofia, Nepal:Kathmandu, Mexico:Mexico City""",
    ),
    Kind(
        "symbol",
        (
            "What is the chemical symbol for {s}?",
            "Name the chemical symbol for {s}.",
            "Which symbol stands for {s}?",
            "Tell me the chemical symbol of {s}.",
            "Do you know the symbol for {s}?",
        ),
        "The chemical symbol for {s} is {o}.",
        "Which of these is the chemical symbol for {s}?",
        """gold:Au, silver:Ag, iron:Fe, copper:Cu, lead:Pb, tin:Sn, zinc:Zn, oxygen:O, hydrogen:H, carbon:C
        nitrogen:N, helium:He, sodium:Na, calcium:Ca, neon:Ne, sulfur:S""",
    ),
    Kind(
        "opposite",
        (
            "What is the opposite of {s}?",
            "Name the opposite of {s}.",
            "Which word is the opposite of {s}?",
            "Tell me the opposite of {s}.",
            "Do you know the opposite of {s}?",
        ),
        "The opposite of {s} is {o}.",
        "Which of these is the opposite of {s}?",
        _both_ways(_OPPOSITES),
    ),
    Kind(
        "young",
        (
            "What is a young {s} called?",
            "Name a young {s}.",
            "Which word means a young {s}?",
            "Tell me what a young {s} is called.",
            "Do you know what a young {s} is called?",
        ),
        "A young {s} is called a {o}.",
        "Which of these is a young {s}?",
        "dog:puppy, cat:kitten, cow:calf, horse:foal, sheep:lamb, pig:piglet, goat:kid, bear:cub, duck:duckling"
        ", frog:tadpole, deer:fawn, hen:chick",
    ),
    Kind(
        "language",
        (
            "What language is spoken in {s}?",
            "Name the language spoken in {s}.",
            "Which language do people speak in {s}?",
            "Tell me the language of {s}.",
            "Do you know the language spoken in {s}?",
        ),
        "The language spoken in {s} is {o}.",
        "Which of these is spoken in {s}?",
        """France:French, Spain:Spanish, Italy:Italian, Germany:German, Brazil:Portuguese, Japan:Japanese
        China:Chinese, Russia:Russian, Egypt:Arabic, Greece:Greek, Poland:Polish, Sweden:Swedish, Turkey:Turkish
        England:English""",
    ),
    Kind(
        "color",
        (
            "What color is {s}?",
            "Name the color of {s}.",
            "Which color is {s}?",
            "Tell me the color of {s}.",
            "Do you know what color {s} is?",
        ),
        "The color of {s} is {o}.",
        "Which of these is the color of {s}?",
        """the sky:blue, grass:green, snow:white, coal:black, a banana:yellow, blood:red, a carrot:orange
        chocolate:brown, a flamingo:pink, an elephant:gray, milk:white, a lemon:yellow""",
    ),
    Kind(
        "count",
        (
            "How many {a} are {b}?",
            "How many {a} are there {b}?",
            "What is the number of {a} {b}?",
            "Tell me how many {a} are {b}.",
            "Do you know how many {a} are {b}?",
        ),
        "There are {o} {a} {b}.",
        "",
        """days|in a week:7, months|in a year:12, hours|in a day:24, minutes|in an hour:60, legs|on a spider:8
        legs|on a dog:4, legs|on an ant:6, sides|on a triangle:3, wings|on a bird:2, players|in a football team:11
        planets|in the solar system:8, fingers|on a hand:5""",
    ),
    Kind(
        "author",
        (
            "Who wrote {s}?",
            "Name the author of {s}.",
            "Which author wrote {s}?",
            "Tell me who wrote {s}.",
            "Do you know who wrote {s}?",
        ),
        "{s} was written by {o}.",
        "Who of these wrote {s}?",
        "Hamlet:Shakespeare, Faust:Goethe, the Odyssey:Homer, Dracula:Stoker, Ulysses:Joyce, Animal Farm:Orwell"
        ", War and Peace:Tolstoy, Don Quixote:Cervantes",
    ),
    Kind(
        "continent",
        (
            "On which continent is {s}?",
            "Name the continent of {s}.",
            "Which continent is {s} on?",
            "Tell me the continent of {s}.",
            "Do you know which continent {s} is on?",
        ),
        "The continent of {s} is {o}.",
        "Which of these is the continent of {s}?",
        """France:Europe, Spain:Europe, Poland:Europe, Greece:Europe, Egypt:Africa, Kenya:Africa, Ghana:Africa
        Japan:Asia, China:Asia, India:Asia, Nepal:Asia, Canada:North America, Cuba:North America, Peru:South America
        Chile:South America, Brazil:South America""",
    ),
    Kind(
        "known",
        (
            "What is {s}?",
            "Name {s}.",
            "Can you name {s}?",
            "Tell me the name of {s}.",
            "Do you know {s}?",
        ),
        "{s} is {o}.",
        "Which of these is {s}?",
        """the largest planet:Jupiter, the smallest planet:Mercury, the red planet:Mars, the largest ocean:the Pacific
        the highest mountain:Everest, the longest river:the Nile, the fastest land animal:the cheetah
        the nearest star:the Sun, the largest animal:the blue whale, the hardest gem:diamond""",
    ),
)
