"""What is asked of the facts, in many ways. s: the subject of a fact; o: its object; a, b: the subject's halves.

A template without a question mark is a task, such as `name the capital of Spain`.
"""

from dataclasses import dataclass

from simsd.eval.families.parts import Wording, wording

FRAMES = wording("""
    what is <name>?
    do you know <name>?
    <name>?
    <name> is what?
    name <name>
    tell me <name>
    give me <name>
    say <name>
    --
    what might <name> be?
    would you know <name>?
    remind me of <name>
    write down <name>
    let me know <name>
""")


@dataclass(frozen=True)
class Topic:
    """A kind of facts, asked in one direction.

    kind: a kind of `simsd.eval.facts`, or empty if `facts` has them. own: questions of this topic. names: how the
    frames call what is asked for, or None. statement: the answer. asks_subject: whether the subject is asked for.
    lower: whether its questions may be in lower case.
    """

    name: str
    kind: str
    statement: str
    own: Wording
    names: Wording | None = None
    asks_subject: bool = False
    lower: bool = True
    facts: tuple[tuple[str, str], ...] = ()


_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()
_NEXT = tuple((names[i], names[(i + 1) % len(names)]) for names in (_DAYS, _MONTHS) for i in range(len(names)))

TOPICS = (
    Topic(
        "capital",
        "capital",
        "The capital of {s} is {o}.",
        wording("""
            which city is the capital of {s}?
            what city is the capital of {s}?
            what is {s}'s capital?
            {s} has which [city as its capital|capital]?
            what is the name of the capital of {s}?
            which capital does {s} have?
            --
            from which city is {s} governed?
            if I go to the capital of {s}, which city am I in?
            what do they call the capital of {s}?
        """),
        wording("""
            the capital of {s}
            the capital city of {s}
            {s}'s capital
            --
            the city that is the capital of {s}
            the name of {s}'s capital city
        """),
    ),
    Topic(
        "country",
        "capital",
        "{o} is the capital of {s}.",
        wording("""
            which country has {o} as its capital?
            {o} is the capital of which country?
            of which country is {o} the capital?
            what country is {o} the capital of?
            whose capital is {o}?
            which country's capital is {o}?
            tell me which country has the capital {o}
            name the country whose capital is {o}
            --
            {o} is a capital, but of which country?
            which land is governed from {o}?
            where is {o} the capital?
            find the country that has {o} for its capital
        """),
        wording("""
            the country whose capital is {o}
            the country with the capital {o}
            the country that has {o} as its capital
            --
            the country of which {o} is the capital
            the country that is governed from {o}
        """),
        asks_subject=True,
    ),
    Topic(
        "symbol",
        "symbol",
        "The chemical symbol for {s} is {o}.",
        wording("""
            which symbol stands for {s}?
            what symbol does {s} have?
            how is {s} written in chemistry?
            which letters stand for {s} in chemistry?
            what is {s}'s chemical symbol?
            --
            how do chemists [write|abbreviate] {s}?
            which sign does {s} have in the periodic table?
        """),
        wording("""
            the chemical symbol for {s}
            the chemical symbol of {s}
            the symbol for {s}
            the symbol of the element {s}
            --
            the abbreviation of the element {s}
            the periodic table's sign for {s}
        """),
    ),
    Topic(
        "element",
        "symbol",
        "{o} is the chemical symbol for {s}.",
        wording("""
            which element has the symbol {o}?
            what element has the chemical symbol {o}?
            {o} is the symbol of which element?
            what does {o} stand for in chemistry?
            for which element does {o} stand?
            name the element with the symbol {o}
            tell me which element is written {o}
            --
            what do chemists mean by {o}?
            {o} in the periodic table is which element?
            say which element hides behind the symbol {o}
        """),
        wording("""
            the element with the symbol {o}
            the element whose symbol is {o}
            --
            the element that chemists write as {o}
            the element which is abbreviated {o}
        """),
        asks_subject=True,
        lower=False,
    ),
    Topic(
        "opposite",
        "opposite",
        "The opposite of {s} is {o}.",
        wording("""
            which word is the opposite of {s}?
            what word means the opposite of {s}?
            {s} is the opposite of what?
            what is not {s} but the opposite?
            what would you call something that is the opposite of {s}?
            --
            which word has the contrary meaning of {s}?
            if something is not {s} at all, what is it?
        """),
        wording("""
            the opposite of {s}
            the opposite of the word {s}
            a word for the opposite of {s}
            --
            the contrary of {s}
            the word that means the reverse of {s}
        """),
    ),
    Topic(
        "young",
        "young",
        "A young {s} is called a {o}.",
        wording("""
            what is a young {s} called?
            what is a baby {s} called?
            what do you call a [young|baby] {s}?
            how do you call a young {s}?
            which word means a [young|baby] {s}?
            tell me what a [young|baby] {s} is called
            --
            what is the child of a {s} called?
            which name is given to a {s} that is still little?
            say how people call a little {s}
        """),
        wording("""
            the name of a [young|baby] {s}
            the word for a [young|baby] {s}
            --
            the name for the little one of a {s}
            the term for a newborn {s}
        """),
    ),
    Topic(
        "grown",
        "young",
        "A {o} is a young {s}.",
        wording("""
            what does a {o} grow up to be?
            a {o} is a young what?
            which animal is a {o} when it is grown up?
            what animal is called a {o} when it is young?
            which animal has a {o}?
            of which animal is a {o} the young?
            tell me which animal is called a {o} when it is young
            --
            what will a {o} be one day?
            a {o} becomes which animal?
            which animal starts its life as a {o}?
        """),
        asks_subject=True,
    ),
    Topic(
        "language",
        "language",
        "The language spoken in {s} is {o}.",
        wording("""
            [what|which] language is spoken in {s}?
            [what|which] language do people speak in {s}?
            what do people speak in {s}?
            in {s}, which language do people speak?
            [what|which] language do they speak in {s}?
            tell me which language is spoken in {s}
            --
            which tongue is used in {s}?
            if I live in {s}, which language should I learn?
            how do people talk in {s}?
        """),
        wording("""
            the language spoken in {s}
            the language of {s}
            the language that people speak in {s}
            --
            the tongue of the people of {s}
            the language you hear in {s}
        """),
    ),
    Topic(
        "spoken",
        "language",
        "{o} is spoken in {s}.",
        wording("""
            where is {o} spoken?
            where do people speak {o}?
            in which country is {o} spoken?
            in which country do people speak {o}?
            name a country where people speak {o}
            tell me where {o} is spoken
            --
            which country's people talk {o}?
            where should I go to hear {o}?
            say in which land {o} is heard
        """),
        wording("""
            a country where {o} is spoken
            a country where people speak {o}
            --
            a land whose language is {o}
            a place where {o} is heard
        """),
        asks_subject=True,
    ),
    Topic(
        "color",
        "color",
        "The color of {s} is {o}.",
        wording("""
            [what|which] color is {s}?
            [what|which] color does {s} have?
            what is {s}'s color?
            {s} has which color?
            tell me what color {s} is
            --
            in which color do you paint {s}?
            how is {s} colored?
            if I draw {s}, which color do I need?
        """),
        wording("""
            the color of {s}
            the color that {s} has
            the usual color of {s}
            --
            the color you see on {s}
            the color in which {s} shines
        """),
    ),
    Topic(
        "count",
        "count",
        "There are {o} {a} {b}.",
        wording("""
            how many {a} are {b}?
            how many {a} are there {b}?
            what number of {a} is there {b}?
            {b}, how many {a} are there?
            tell me how many {a} are {b}
            tell me how many {a} there are {b}
            --
            how many {a} can be counted {b}?
            what do you get if you count the {a} {b}?
            count the {a} {b}
            say how many {a} one finds {b}
        """),
        wording("""
            the number of {a} {b}
            --
            the total of {a} {b}
            the count of {a} {b}
        """),
    ),
    Topic(
        "author",
        "author",
        "{s} was written by {o}.",
        wording("""
            who wrote {s}?
            who is the author of {s}?
            which author wrote {s}?
            by whom was {s} written?
            who was {s} written by?
            which writer wrote {s}?
            {s} was written by whom?
            tell me who wrote {s}
            tell me who the author of {s} is
            --
            whose work is {s}?
            from whose pen is {s}?
            who was it that wrote {s}?
        """),
        wording("""
            the author of {s}
            the writer of {s}
            the name of {s}'s author
            --
            the person who wrote {s}
            the man behind {s}
        """),
    ),
    Topic(
        "work",
        "author",
        "{o} wrote {s}.",
        wording("""
            what did {o} write?
            which [book|work] did {o} write?
            which [book|work] is by {o}?
            what was written by {o}?
            which famous work did {o} write?
            name a work by {o}
            tell me what {o} wrote
            --
            what is {o} famous for having written?
            which work made {o} famous?
            say what came from {o}'s pen
        """),
        wording("""
            a work by {o}
            a famous work of {o}
            --
            something that {o} wrote
            one work whose author is {o}
        """),
        asks_subject=True,
    ),
    Topic(
        "continent",
        "continent",
        "The continent of {s} is {o}.",
        wording("""
            on which continent is {s}?
            which continent is {s} on?
            what continent is {s} [in|on]?
            {s} is on which continent?
            to which continent does {s} belong?
            which continent does {s} belong to?
            tell me on which continent {s} is
            --
            which continent would I fly to to see {s}?
            {s} is a part of which continent?
            on what continent can {s} be found?
        """),
        wording("""
            the continent of {s}
            {s}'s continent
            the continent that {s} is on
            --
            the continent where {s} lies
            the continent to find {s} on
        """),
    ),
    Topic(
        "known",
        "known",
        "{s} is {o}.",
        wording("""
            what is {s} called?
            which one is {s}?
            what is the name of {s}?
            what do we call {s}?
            tell me what {s} is called
            --
            which name does {s} have?
            how is {s} called?
            say how people call {s}
        """),
        wording("""
            {s}
            the name of {s}
            --
            the name that is given to {s}
            what people call {s}
        """),
    ),
    Topic(
        "famous",
        "known",
        "{o} is {s}.",
        wording("""
            what is {o}?
            what is {o} known for?
            what is special about {o}?
            why is {o} famous?
            what do you know about {o}?
            what can you tell me about {o}?
            tell me about {o}
            tell me what {o} is
            say something about {o}
            --
            what makes {o} special?
            what should one know about {o}?
            explain what {o} is
        """),
        asks_subject=True,
    ),
    Topic(
        "after",
        "",
        "{o} comes after {s}.",
        wording("""
            what comes after {s}?
            which one comes after {s}?
            what follows {s}?
            what is next after {s}?
            after {s} comes what?
            tell me what comes after {s}
            name what follows {s}
            --
            {s} is over, so what begins?
            when {s} ends, what starts?
            what do we have right after {s}?
        """),
        facts=_NEXT,
    ),
    Topic(
        "before",
        "",
        "{s} comes before {o}.",
        wording("""
            what comes before {o}?
            which one comes before {o}?
            what is just before {o}?
            before {o} comes what?
            what precedes {o}?
            tell me what comes before {o}
            name what is before {o}
            --
            what must end for {o} to begin?
            what did we have right before {o}?
            what has just ended when {o} starts?
        """),
        asks_subject=True,
        facts=_NEXT,
    ),
)
