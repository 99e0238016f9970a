"""The facts that trivia and multiple-choice questions ask for."""

Facts = tuple[tuple[str, str], ...]


def _facts(table: str) -> Facts:
    """Read facts that are written as "subject:object", in the order of the table."""
    rows = (row.split(":") for row in table.replace("\n", ",").split(",") if row.strip())
    return tuple((subject.strip(), value.strip()) for subject, value in rows)


_OPPOSITES = (
    "hot:cold, big:small, fast:slow, happy:sad, light:dark, old:young, up:down, full:empty, rich:poor, "
    "hard:soft, wet:dry, open:closed, high:low, strong:weak, good:bad, long:short, thick:thin, loud:quiet, early:late, "
    "left:right, near:far, clean:dirty, day:night, true:false, cheap:expensive, wide:narrow, "
    "deep:shallow, easy:difficult, sweet:sour, front:back, black:white, love:hate, beautiful:ugly, in:out, "
    "always:never, first:last, top:bottom, inside:outside, push:pull, win:lose, buy:sell, begin:end, alive:dead"
)


def _both_ways(table: str) -> str:
    pairs = [row.strip().split(":") for row in table.split(",")]
    return ",".join([f"{a}:{b}" for a, b in pairs] + [f"{b}:{a}" for a, b in pairs])


FACTS: dict[str, Facts] = {
    "capital": _facts(
        """France:Paris, Spain:Madrid, Italy:Rome, Germany:Berlin, Portugal:Lisbon, Austria:Vienna, Greece:Athens
        Poland:Warsaw, Norway:Oslo, Sweden:Stockholm, Finland:Helsinki, Denmark:Copenhagen, Ireland:Dublin
        England:London, Russia:Moscow, Turkey:Ankara, Egypt:Cairo, Kenya:Nairobi, Ghana:Accra, Japan:Tokyo
        China:Beijing, India:Delhi, Korea:Seoul, Thailand:Bangkok, Vietnam:Hanoi, Iran:Tehran, Iraq:Baghdad
        Canada:Ottawa, Cuba:Havana, Peru:Lima, Chile:Santiago, Hungary:Budapest, Belgium:Brussels
        Bulgaria:Sofia, Nepal:Kathmandu, Mexico:Mexico City, Australia:Canberra, Argentina:Buenos Aires
        Brazil:Brasilia, Romania:Bucharest, Croatia:Zagreb, Serbia:Belgrade, Ukraine:Kyiv, Iceland:Reykjavik
        Scotland:Edinburgh, Wales:Cardiff, Morocco:Rabat, Tunisia:Tunis, Algeria:Algiers, Nigeria:Abuja
        Ethiopia:Addis Ababa, Colombia:Bogota, Venezuela:Caracas, Ecuador:Quito, Uruguay:Montevideo
        Indonesia:Jakarta, Malaysia:Kuala Lumpur, Pakistan:Islamabad, Bangladesh:Dhaka, Lebanon:Beirut
        Syria:Damascus, Jordan:Amman, Switzerland:Bern, the Netherlands:Amsterdam, the Philippines:Manila
        the United States:Washington, Slovakia:Bratislava, Estonia:Tallinn, Latvia:Riga, Lithuania:Vilnius
        Albania:Tirana, Cyprus:Nicosia, Malta:Valletta, Saudi Arabia:Riyadh, New Zealand:Wellington"""
    ),
    "symbol": _facts(
        """gold:Au, silver:Ag, iron:Fe, copper:Cu, lead:Pb, tin:Sn, zinc:Zn, oxygen:O, hydrogen:H, carbon:C
        nitrogen:N, helium:He, sodium:Na, calcium:Ca, neon:Ne, sulfur:S, potassium:K, chlorine:Cl, nickel:Ni
        mercury:Hg, platinum:Pt, uranium:U, iodine:I, magnesium:Mg, aluminum:Al, silicon:Si, lithium:Li
        phosphorus:P, titanium:Ti"""
    ),
    "opposite": _facts(_both_ways(_OPPOSITES)),
    "young": _facts(
        "dog:puppy, cat:kitten, cow:calf, horse:foal, sheep:lamb, pig:piglet, goat:kid, bear:cub, duck:duckling"
        ", frog:tadpole, deer:fawn, hen:chick, lion:cub, goose:gosling, swan:cygnet, kangaroo:joey, elephant:calf"
        ", wolf:pup, tiger:cub, seal:pup"
    ),
    "language": _facts(
        """France:French, Spain:Spanish, Italy:Italian, Germany:German, Brazil:Portuguese, Japan:Japanese
        China:Chinese, Russia:Russian, Egypt:Arabic, Greece:Greek, Poland:Polish, Sweden:Swedish, Turkey:Turkish
        England:English, Mexico:Spanish, Austria:German, Portugal:Portuguese, Argentina:Spanish, Norway:Norwegian
        Denmark:Danish, Finland:Finnish, Hungary:Hungarian, the Netherlands:Dutch, Australia:English, Peru:Spanish
        Korea:Korean, Vietnam:Vietnamese, Thailand:Thai, Morocco:Arabic, Iran:Persian, Ukraine:Ukrainian"""
    ),
    "color": _facts(
        """the sky:blue, grass:green, snow:white, coal:black, a banana:yellow, blood:red, a carrot:orange
        chocolate:brown, a flamingo:pink, an elephant:gray, milk:white, a lemon:yellow
        the sun:yellow, a tomato:red, a strawberry:red, a frog:green, the sea:blue, a leaf:green, a raven:black
        a pumpkin:orange, a pig:pink, a cucumber:green, salt:white, an orange:orange, a cherry:red"""
    ),
    "count": _facts(
        """days|in a week:7, months|in a year:12, hours|in a day:24, minutes|in an hour:60, legs|on a spider:8
        legs|on a dog:4, legs|on an ant:6, sides|on a triangle:3, wings|on a bird:2, players|in a football team:11
        planets|in the solar system:8, fingers|on a hand:5
        toes|on a foot:5, seconds|in a minute:60, sides|on a square:4, letters|in the alphabet:26, weeks|in a year:52
        days|in a year:365, legs|on a cat:4, legs|on a horse:4, legs|on a bird:2, arms|on an octopus:8
        wheels|on a car:4, wheels|on a bicycle:2, seasons|in a year:4, eggs|in a dozen:12, cents|in a dollar:100
        continents|on Earth:7, sides|on a hexagon:6, sides|on a pentagon:5, strings|on a violin:4"""
    ),
    "author": _facts(
        "Hamlet:Shakespeare, Faust:Goethe, the Odyssey:Homer, Dracula:Stoker, Ulysses:Joyce, Animal Farm:Orwell"
        ", War and Peace:Tolstoy, Don Quixote:Cervantes, Macbeth:Shakespeare, Oliver Twist:Dickens, Emma:Austen"
        ", the Iliad:Homer, Moby Dick:Melville, the Divine Comedy:Dante, Les Miserables:Hugo, Frankenstein:Shelley"
        ", Romeo and Juliet:Shakespeare, Pride and Prejudice:Austen, the Jungle Book:Kipling, Peter Pan:Barrie"
    ),
    "continent": _facts(
        """France:Europe, Spain:Europe, Poland:Europe, Greece:Europe, Egypt:Africa, Kenya:Africa, Ghana:Africa
        Japan:Asia, China:Asia, India:Asia, Nepal:Asia, Canada:North America, Cuba:North America, Peru:South America
        Chile:South America, Brazil:South America, Italy:Europe, Germany:Europe, Portugal:Europe, Sweden:Europe
        Norway:Europe, England:Europe, Austria:Europe, Mexico:North America, Argentina:South America, Nigeria:Africa
        Morocco:Africa, Ethiopia:Africa, Thailand:Asia, Vietnam:Asia, Korea:Asia, Iran:Asia, Iraq:Asia
        Colombia:South America, Hungary:Europe, Ireland:Europe, Pakistan:Asia, Indonesia:Asia"""
    ),
    "known": _facts(
        """the largest planet:Jupiter, the smallest planet:Mercury, the red planet:Mars, the largest ocean:the Pacific
        the highest mountain:Everest, the longest river:the Nile, the fastest land animal:the cheetah
        the nearest star:the Sun, the largest animal:the blue whale, the hardest gem:diamond
        the tallest animal:the giraffe, the largest continent:Asia, the largest country:Russia
        the king of the jungle:the lion, the largest bird:the ostrich
        the smallest continent:Australia, the ringed planet:Saturn, the lightest element:hydrogen"""
    ),
}
"""The facts by kind, as (subject, object). A bar divides a subject into its two halves."""
