"""Templates of arithmetic questions that are not stories of gaining and losing.

n, m: two names; he: n again; t, ts: a noun and its plural; c, cs: a container and its plural; a, b, c: the numbers.
"""

from dataclasses import dataclass

from simsd.eval.families.parts import Wording, wording


@dataclass(frozen=True)
class Scene:
    """An operation, ways to ask it, and the sentence that says the result: r is `17 coins`."""

    op: str
    wording: Wording
    conclusion: str


_ALL = "[in total|altogether|in all]"
_BOTH = "[together|in total|altogether|in all]"

TOGETHER = wording(f"""
    {{n}} has {{a}} {{ts}}. {{m}} has {{b}} {{ts}}. How many {{ts}} do they have {_BOTH}?
    {{n}} has {{a}} {{ts}} and {{m}} has {{b}}. How many {{ts}} do they have {_BOTH}?
    {{n}} has {{a}} {{ts}} and {{m}} has {{b}} {{ts}}. [Find|Give] the total number of {{ts}}.
    If {{n}} has {{a}} {{ts}} and {{m}} has {{b}}, how many {{ts}} do they have {_BOTH}?
    How many {{ts}} do {{n}} and {{m}} have together if {{n}} has {{a}} and {{m}} has {{b}}?
    {{n}} found {{a}} {{ts}} and {{m}} found {{b}} {{ts}}. How many did they find {_BOTH}?
    {{n}} bought {{a}} {{ts}}, and {{m}} bought {{b}}. How many {{ts}} did they buy {_BOTH}?
    {{n}} has {{a}} {{ts}}. {{m}} has {{b}} of them. How many do the two have {_BOTH}?
    {{n}} sold {{a}} {{ts}} on Monday and {{b}} on Tuesday. How many {{ts}} did {{he}} sell {_ALL}?
    {{n}} counted {{a}} {{ts}} in the morning and {{b}} in the evening. How many {{ts}} did {{he}} count {_ALL}?
    --
    {{n}} owns {{a}} {{ts}} while {{m}} owns {{b}}. Together, how many {{ts}} do they own?
    {{n}} and {{m}} put their {{ts}} together. {{n}} had {{a}} and {{m}} had {{b}}. How many {{ts}} are there now?
    What is the total if {{n}} brings {{a}} {{ts}} and {{m}} brings {{b}}?
    {{n}} made {{a}} {{ts}} last week and {{b}} this week. How many {{ts}} is that in total?
""")
TOTAL_PLACES = wording(f"""
    There are {{a}} {{ts}} {{place}} and {{b}} {{ts}} {{other_place}}. How many {{ts}} are there {_ALL}?
    There are {{a}} {{ts}} {{place}}. There are {{b}} more {{other_place}}. How many {{ts}} are there {_ALL}?
    {{n}} has {{a}} {{ts}} {{place}} and {{b}} {{other_place}}. How many {{ts}} does {{n}} have {_ALL}?
    How many {{ts}} are there {_ALL} if {{a}} are {{place}} and {{b}} are {{other_place}}?
    {{n}} sees {{a}} {{color}} {{ts}} and {{b}} {{other_color}} {{ts}}. How many {{ts}} does {{he}} see {_ALL}?
    {{n}} has {{a}} {{color}} {{ts}} and {{b}} {{other_color}} ones. How many {{ts}} does {{he}} have {_ALL}?
    If there are {{a}} {{ts}} {{place}} and {{b}} {{other_place}}, how many {{ts}} are there {_ALL}?
    --
    {{n}} keeps {{a}} {{ts}} {{place}}, and another {{b}} {{other_place}}. What is the total number of {{ts}}?
    Count all {{ts}}: {{a}} are {{place}}, {{b}} are {{other_place}}.
    You see {{a}} {{ts}} {{place}} and {{b}} {{other_place}}. How many do you see overall?
""")
COMPARE = wording("""
    {n} has {a} {ts}. {m} has {b} {ts}. How many more {ts} does {n} have than {m}?
    {n} has {a} {ts} and {m} has {b}. How many more {ts} does {n} have?
    {n} has {a} {ts} and {m} has only {b}. How many more does {n} have?
    {m} has {b} {ts}. {n} has {a} {ts}. How many fewer {ts} does {m} have?
    {n} has {a} {ts}, {m} has {b}. What is the difference?
    If {n} has {a} {ts} and {m} has {b}, how many more {ts} does {n} have than {m}?
    How many more {ts} does {n} have than {m} if {n} has {a} and {m} has {b}?
    {m} has {b} {ts} and {n} has {a}. Find the difference.
    --
    {n} owns {a} {ts}, but {m} owns just {b}. By how many {ts} is {n} ahead of {m}?
    {m} has {b} {ts}. How many more are in the hands of {n}, who has {a}?
    {n} has {a} {ts} against {b} for {m}. How large is the difference?
""")
REST = wording("""
    {n} has {a} {ts}. {b} of them are {color}. How many are not {color}?
    {n} has {a} {ts}. {b} of them are {color} and the rest are {other_color}. How many {ts} are {other_color}?
    There are {a} {ts} {place}. {b} of them are {color}. How many of the {ts} are not {color}?
    There are {a} {ts} {place}, {b} {color} ones and the rest {other_color}. How many are {other_color}?
    A {c} holds {a} {ts}. {b} are {color}, and the others are {other_color}. How many {other_color} {ts} are there?
    Of {a} {ts}, {b} are broken. How many {ts} are not broken?
    {n} needs {a} {ts} and has {b}. How many [more {ts} does {he} need|{ts} are missing]?
    {n} wants to have {a} {ts}. {n} already has {b}. How many more does {he} need?
    There were {a} {ts} {place}. {b} of them were [sold|taken|given away]. How many {ts} are left?
    There are {a} {ts} {place}. If {b} are [taken away|removed|sold], how many [remain|are left]?
    --
    Out of {a} {ts}, {b} have gone. What is the rest?
    {n} counts {a} {ts} in one place. Only {b} of those are {color}. What number of {ts} is left with another color?
    From {a} {ts} {place}, somebody takes {b}. What remains of the {ts}?
    A full {c} has {a} {ts}. This one has {b}. How many {ts} should be put in to fill it?
""")
GROUPS = wording(f"""
    There are {{a}} {{cs}} with {{b}} {{ts}} in each. How many {{ts}} are there {_ALL}?
    There are {{a}} {{cs}}. Each [has|holds] {{b}} {{ts}}. How many {{ts}} are there {_ALL}?
    There are {{b}} {{ts}} in each {{c}}. How many {{ts}} are in {{a}} {{cs}}?
    Each {{c}} has {{b}} {{ts}}. How many {{ts}} do {{a}} {{cs}} have?
    {{n}} has {{a}} {{cs}} with {{b}} {{ts}} each. How many {{ts}} does {{he}} have {_ALL}?
    {{n}} buys {{a}} {{cs}} of {{b}} {{ts}}. How many {{ts}} does {{he}} [buy|have now]?
    If one {{c}} holds {{b}} {{ts}}, how many {{ts}} do {{a}} {{cs}} hold?
    {{n}} [buys|finds|sells] {{b}} {{ts}} every day. How many {{ts}} is that in {{a}} days?
    How many {{ts}} are there in {{a}} {{cs}} of {{b}} {{ts}}?
    --
    {{n}} fills {{a}} {{cs}}, and {{b}} {{ts}} go into every one of them. How many {{ts}} does {{he}} use?
    Every {{c}} contains {{b}} {{ts}}. What is the number of {{ts}} in {{a}} of these {{cs}}?
    {{a}} people bring {{b}} {{ts}} each. How many {{ts}} do they bring?
""")
TIMES = wording("""
    {m} has {b} {ts}. {n} has {times} as many. How many {ts} does {n} have?
    {m} has {b} {ts} and {n} has {times} as many. How many {ts} does {n} have?
    {n} has {times} as many {ts} as {m}. {m} has {b} {ts}. How many {ts} does {n} have?
    If {m} has {b} {ts} and {n} has {times} as many, how many does {n} have?
    How many {ts} does {n} have if {m} has {b} and {n} has {times} as many?
    --
    {m} found {b} {ts}. {n} found {times} that number. How many {ts} did {n} find?
    {n} sold {times} as many {ts} as {m}, who sold {b}. How many {ts} did {n} sell?
""")
COST = wording("""
    One {t} costs {b} dollars. How much do {a} {ts} cost?
    A {c} of {ts} costs {b} dollars. How much do {a} {cs} cost?
    How much do {a} {ts} cost if one costs {b} dollars?
    {n} buys {a} {ts} for {b} dollars each. How much does {he} pay?
    If one {t} costs {b} dollars, what do {a} {ts} cost?
    {n} sells {a} {ts} at {b} dollars each. How many dollars does {he} get?
    {n} earns {b} dollars a day. How many dollars does {he} earn in {a} days?
    --
    The price of one {t} is {b} dollars. What must {n} pay for {a} of them?
    At {b} dollars for each {t}, how much money do {a} {ts} bring?
    {a} {ts} at {b} dollars apiece: what is the price?
""")
SPEND = wording("""
    {n} has {a} dollars and spends {b}. How many dollars are left?
    {n} has {a} dollars. {n} spends {b} dollars on {ts}. How much money is left?
    {n} had {a} dollars and paid {b} for a {color} {t}. How much money does {he} have now?
    A {color} {t} costs {b} dollars. {n} pays with {a} dollars. How much does {he} get back?
    If {n} has {a} dollars and spends {b} of them, how many dollars are left?
    How many dollars does {n} have left if {n} has {a} and spends {b}?
    --
    From a budget of {a} dollars, {n} uses {b} for {ts}. What is still there?
    The {ts} were {b} dollars and {n} handed over {a}. What is the change?
    {b} of {a} dollars are gone. How much money is that from now on?
""")
AGE = wording("""
    {n} is {a} years old. How old will {he} be in {b} years?
    {n} is {a}. How old is {he} in {b} years?
    How old will {n} be in {b} years if {n} is {a} now?
    {m} is {b} years old. {n} is {a} years older. How old is {n}?
    If {n} is {a} years old now, how old will {he} be in {b} years?
    --
    Today {n} turns {a}. What will be the age of {n} after {b} more years?
    In {b} years, how old is {n}, who is {a} today?
""")

SHARE = wording("""
    {n} shares {a} {ts} [equally |evenly |]among {b} [friends|people|children]. How many does each [get|one get]?
    {n} divides {a} {ts} [equally |evenly |]among {b} [friends|people|children]. How many {ts} does each get?
    {b} [friends|people|children] share {a} {ts} equally. How many {ts} does each [get|of them get]?
    {n} puts {a} {ts} into {b} {cs}, the same number in each. How many {ts} are in each {c}?
    If {a} {ts} are shared [equally among|among|by] {b} people, how many does each get?
    {n} has {a} {ts} and {b} {cs}. How many {ts} go into each {c}?
    There are {a} {ts} in {b} {cs}, the same number in each. How many {ts} does each {c} have?
    How many {ts} does each get if {b} [friends|children] share {a} {ts}?
    --
    {n} deals out {a} {ts} to {b} players. What number of {ts} does every player hold?
    {a} {ts} fill {b} {cs} evenly. What does one {c} contain?
""")

SCENES = (
    Scene("+", TOGETHER, "That is {r} in total."),
    Scene("+", TOTAL_PLACES, "That is {r} in total."),
    Scene("-", COMPARE, "{n} has {more} than {m}."),
    Scene("-", REST, "That leaves {r}."),
    Scene("*", GROUPS, "That is {r} in total."),
    Scene("*", TIMES, "That is {r}."),
    Scene("*", COST, "That is {dollars} in total."),
    Scene("-", SPEND, "That leaves {dollars}."),
    Scene("+", AGE, "That is {years}."),
    Scene("/", SHARE, "That is {r} for each."),
)

PLAIN = {
    "+": wording("""
        [What is|How much is|What's] {a} [+|plus] {b}?
        [Calculate|Work out|Solve] {a} + {b}.
        {a} + {b}
        {a} + {b} = ?
        Add {a} and {b}.
        Add {b} to {a}.
        What is the sum of {a} and {b}?
        [Give|Find|Tell] me the sum of {a} and {b}.
        Can you add {a} and {b}?
        How much are {a} and {b} together?
        What is {b} more than {a}?
        --
        Compute {a}+{b}
        What do you get when you add {b} to {a}?
        {a} and {b} make how much?
        If I add {a} and {b}, what do I get?
        {a} increased by {b} is what?
    """),
    "-": wording("""
        [What is|How much is|What's] {a} [-|minus] {b}?
        [Calculate|Work out|Solve] {a} - {b}.
        {a} - {b}
        {a} - {b} = ?
        Subtract {b} from {a}.
        Take {b} away from {a}.
        What is the difference between {a} and {b}?
        [Give|Find|Tell] me the difference of {a} and {b}.
        Can you subtract {b} from {a}?
        What is {b} less than {a}?
        What is left if you take {b} from {a}?
        --
        Compute {a}-{b}
        What do you get when you subtract {b} from {a}?
        How far is it from {b} to {a}?
        If I take {b} off {a}, what do I get?
        {a} decreased by {b} is what?
    """),
    "*": wording("""
        [What is|How much is|What's] {a} [*|times|x|multiplied by] {b}?
        [Calculate|Work out|Solve] {a} * {b}.
        {a} [*|x] {b}
        {a} * {b} = ?
        Multiply {a} by {b}.
        Multiply {a} and {b}.
        What is the product of {a} and {b}?
        [Give|Find|Tell] me the product of {a} and {b}.
        Can you multiply {a} by {b}?
        --
        Compute {a}*{b}
        What do you get when you multiply {a} by {b}?
        {a} times {b} makes how much?
        If I multiply {a} by {b}, what do I get?
    """),
}
PLAIN["/"] = wording("""
    [What is|How much is|What's] {a} [/|divided by] {b}?
    [Calculate|Work out|Solve] {a} / {b}.
    {a} / {b}
    {a} / {b} = ?
    Divide {a} by {b}.
    Can you divide {a} by {b}?
    [Give|Find|Tell] me {a} divided by {b}.
    How many times does {b} go into {a}?
    --
    Compute {a}/{b}
    What do you get when you divide {a} by {b}?
    If I divide {a} by {b}, what do I get?
""")
PLAIN_TWO = {
    "++": wording("""
        What is {a} [+|plus] {b} [+|plus] {c}?
        Add {a}, {b} and {c}.
        [Calculate|Work out] {a} + {b} + {c}.
        What is the sum of {a}, {b} and {c}?
        --
        Compute {a}+{b}+{c}
        {a} plus {b} plus {c} makes how much?
        What do I get for {a} plus {b} plus {c}?
        How much do {a}, {b} and {c} make together?
    """),
    "+-": wording("""
        What is {a} + {b} - {c}?
        [Calculate|Work out] {a} + {b} - {c}.
        Add {a} and {b}, then subtract {c}.
        What is {a} plus {b} minus {c}?
        --
        Compute {a}+{b}-{c}
        {a} plus {b} minus {c} makes how much?
        What do I get for {a} plus {b} minus {c}?
        Take the sum of {a} and {b}, and take away {c}.
    """),
    "-+": wording("""
        What is {a} - {b} + {c}?
        [Calculate|Work out] {a} - {b} + {c}.
        Subtract {b} from {a}, then add {c}.
        What is {a} minus {b} plus {c}?
        --
        Compute {a}-{b}+{c}
        {a} minus {b} plus {c} makes how much?
        What do I get for {a} minus {b} plus {c}?
        Take {b} from {a} and then put {c} on top.
    """),
    "*+": wording("""
        What is {a} * {b} + {c}?
        [Calculate|Work out] {a} * {b} + {c}.
        Multiply {a} by {b}, then add {c}.
        What is {a} times {b} plus {c}?
        --
        Compute {a}*{b}+{c}
        {a} times {b} plus {c} makes how much?
        What do I get for {a} times {b} plus {c}?
        Take {a} times {b} and put {c} on top.
    """),
}
