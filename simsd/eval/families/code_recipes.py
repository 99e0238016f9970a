"""What the Python functions of the code family do, in words and in code.

A description is a clause whose verb comes first in its base form (`add {k} to {x}`), or, after `=`, what the function
returns (`= the square of {x}`), or, after `?`, what it checks (`? {x} is greater than {k}`). x, y: the arguments;
k, j: constants.
"""

from dataclasses import dataclass

from simsd.eval.families.parts import Wording, wording


@dataclass(frozen=True)
class Recipe:
    """A function.

    argument: number, numbers (two of them), list or string; `filled list` and `filled string` are never empty.
    body: its code, whose last line returns.
    """

    name: str
    argument: str
    says: Wording
    body: str


@dataclass(frozen=True)
class Operation:
    """An operation on {e}, for functions of two operations. {e} is a name or an expression in brackets."""

    name: str
    says: Wording
    expression: str


OPERATIONS = (
    Operation("add", wording("add {k} to {o}\n increase {o} by {k}\n--\n raise {o} by {k}"), "{e} + {k}"),
    Operation("subtract", wording("subtract {k} from {o}\n decrease {o} by {k}\n--\n take {k} off {o}"), "{e} - {k}"),
    Operation("multiply", wording("multiply {o} by {k}\n--\n scale {o} by {k}"), "{e} * {k}"),
    Operation("double", wording("double {o}\n multiply {o} by 2\n--\n take {o} twice"), "{e} * 2"),
    Operation("square", wording("square {o}\n multiply {o} by itself\n--\n put {o} to the power of 2"), "{e} ** 2"),
    Operation("negate", wording("negate {o}\n change the sign of {o}\n--\n flip the sign of {o}"), "-{e}"),
)

_LOOP = "result = []\nfor item in {{x}}:\n    if {}:\n        result.append(item)\nreturn result"
_COUNT = "count = 0\nfor item in {{x}}:\n    if {}:\n        count += 1\nreturn count"
_SUM = "total = 0\nfor item in {{x}}:\n    if {}:\n        total += item\nreturn total"
_EACH = "result = []\nfor item in {{x}}:\n    result.append({})\nreturn result"


def _recipe(name: str, argument: str, body: str, says: str) -> Recipe:
    return Recipe(name, argument, wording(says), body)


RECIPES = (
    _recipe("add", "number", "return {x} + {k}", """
        add {k} to {x}
        increase {x} by {k}
        = {x} plus {k}
        = the sum of {x} and {k}
        --
        = what you get when you add {k} to {x}
        = the number that is {k} more than {x}
    """),
    _recipe("subtract", "number", "return {x} - {k}", """
        subtract {k} from {x}
        decrease {x} by {k}
        take {k} away from {x}
        = {x} minus {k}
        --
        = what is left of {x} without {k}
        = the number that is {k} less than {x}
    """),
    _recipe("multiply", "number", "return {x} * {k}", """
        multiply {x} by {k}
        = {x} times {k}
        = {k} times {x}
        = the product of {x} and {k}
        --
        scale {x} by a factor of {k}
        = {x} multiplied with {k}
    """),
    _recipe("remainder", "number", "return {x} % {k}", """
        = the remainder of {x} divided by {k}
        = the remainder when {x} is divided by {k}
        = {x} modulo {k}
        --
        = what remains of {x} after division by {k}
    """),
    _recipe("divide", "number", "return {x} // {k}", """
        divide {x} by {k} and round down
        = {x} divided by {k}, rounded down
        --
        = how often {k} fits into {x}
    """),
    _recipe("greater", "number", "return {x} > {k}", """
        ? {x} is greater than {k}
        ? {x} is more than {k}
        ? {x} is larger than {k}
        --
        ? {x} exceeds {k}
    """),
    _recipe("less", "number", "return {x} < {k}", """
        ? {x} is less than {k}
        ? {x} is smaller than {k}
        --
        ? {x} is under {k}
    """),
    _recipe("equal_k", "number", "return {x} == {k}", """
        ? {x} is equal to {k}
        ? {x} equals {k}
        --
        ? {x} is the same as {k}
    """),
    _recipe("divisible", "number", "return {x} % {k} == 0", """
        ? {x} is divisible by {k}
        ? {x} is a multiple of {k}
        --
        ? {k} divides {x} without a rest
    """),
    _recipe("max_k", "number", "return max({x}, {k})", """
        = the larger of {x} and {k}
        = the maximum of {x} and {k}
        --
        = whichever is bigger, {x} or {k}
    """),
    _recipe("min_k", "number", "return min({x}, {k})", """
        = the smaller of {x} and {k}
        = the minimum of {x} and {k}
        --
        = whichever is lower, {x} or {k}
    """),
    _recipe("distance", "number", "return abs({x} - {k})", """
        = the distance between {x} and {k}
        = the absolute difference of {x} and {k}
        --
        = how far {x} is from {k}
    """),
    _recipe("branch", "number", "if {x} < 0:\n    return {k}\nreturn {j}", """
        return {k} if {x} is negative and {j} otherwise
        return {k} if {x} is less than 0, else {j}
        --
        give {k} when {x} is below zero and {j} if not
    """),
    _recipe("square", "number", "return {x} ** 2", """
        square {x}
        = the square of {x}
        = {x} squared
        = {x} times itself
        multiply {x} by itself
        --
        = the second power of {x}
        raise {x} to the power of two
    """),
    _recipe("cube", "number", "return {x} ** 3", """
        cube {x}
        = the cube of {x}
        = {x} cubed
        --
        = the third power of {x}
    """),
    _recipe("double", "number", "return {x} * 2", """
        double {x}
        = twice {x}
        = the double of {x}
        = {x} times two
        --
        = {x} taken twice
        make {x} twice as large
    """),
    _recipe("triple", "number", "return {x} * 3", """
        triple {x}
        = three times {x}
        --
        make {x} three times as large
    """),
    _recipe("half", "number", "return {x} / 2", """
        halve {x}
        = half of {x}
        = {x} divided by two
        --
        cut {x} in half
    """),
    _recipe("negative", "number", "return -{x}", """
        negate {x}
        = the negative of {x}
        = minus {x}
        --
        turn {x} into its negative
    """),
    _recipe("abs", "number", "return abs({x})", """
        = the absolute value of {x}
        --
        = {x} without its sign
    """),
    _recipe("even", "number", "return {x} % 2 == 0", """
        ? {x} is even
        ? {x} is an even number
        --
        ? {x} can be halved without a rest
    """),
    _recipe("odd", "number", "return {x} % 2 == 1", """
        ? {x} is odd
        ? {x} is an odd number
        --
        ? {x} is not even
    """),
    _recipe("positive", "number", "return {x} > 0", """
        ? {x} is positive
        ? {x} is greater than zero
        --
        ? {x} is above zero
    """),
    _recipe("is_negative", "number", "return {x} < 0", """
        ? {x} is negative
        ? {x} is less than zero
        --
        ? {x} is below zero
    """),
    _recipe("sum_two", "numbers", "return {x} + {y}", """
        add {x} and {y}
        = the sum of {x} and {y}
        = {x} plus {y}
        --
        = the total of {x} and {y}
        put {x} and {y} together
    """),
    _recipe("difference", "numbers", "return {x} - {y}", """
        subtract {y} from {x}
        = {x} minus {y}
        = the difference of {x} and {y}
        --
        take {y} away from {x}
    """),
    _recipe("product", "numbers", "return {x} * {y}", """
        multiply {x} and {y}
        multiply {x} by {y}
        = the product of {x} and {y}
        = {x} times {y}
        --
        = what {x} multiplied by {y} is
    """),
    _recipe("larger", "numbers", "return max({x}, {y})", """
        = the larger of {x} and {y}
        = the maximum of {x} and {y}
        = the bigger one of {x} and {y}
        --
        pick the greater one of {x} and {y}
    """),
    _recipe("smaller", "numbers", "return min({x}, {y})", """
        = the smaller of {x} and {y}
        = the minimum of {x} and {y}
        --
        pick the lesser one of {x} and {y}
    """),
    _recipe("same", "numbers", "return {x} == {y}", """
        ? {x} and {y} are equal
        ? {x} equals {y}
        ? {x} is equal to {y}
        --
        ? {x} and {y} are the same
    """),
    _recipe("mean", "numbers", "return ({x} + {y}) / 2", """
        = the average of {x} and {y}
        = the mean of {x} and {y}
        --
        = the middle between {x} and {y}
    """),
    _recipe("length", "list", "return len({x})", """
        count the items of {x}
        = the length of {x}
        = the number of items in {x}
        --
        = how many items {x} has
    """),
    _recipe("total", "list", "return sum({x})", """
        sum {x}
        add up the items of {x}
        = the sum of {x}
        = the sum of the items of {x}
        --
        = the total of all items in {x}
    """),
    _recipe("largest", "filled list", "return max({x})", """
        = the largest item of {x}
        = the maximum of {x}
        find the largest item of {x}
        --
        look for the biggest item in {x}
    """),
    _recipe("smallest", "filled list", "return min({x})", """
        = the smallest item of {x}
        = the minimum of {x}
        find the smallest item of {x}
        --
        look for the least item in {x}
    """),
    _recipe("first_item", "filled list", "return {x}[0]", """
        = the first item of {x}
        = the first element of {x}
        --
        = the item with which {x} begins
    """),
    _recipe("last_item", "filled list", "return {x}[-1]", """
        = the last item of {x}
        = the last element of {x}
        --
        = the item with which {x} ends
    """),
    _recipe("reversed", "list", "return {x}[::-1]", """
        reverse {x}
        = {x} in reverse order
        --
        turn {x} around
    """),
    _recipe("sorted", "list", "return sorted({x})", """
        sort {x}
        = {x} in sorted order
        = the sorted items of {x}
        --
        put {x} in ascending order
    """),
    _recipe("first", "list", "return {x}[:{k}]", """
        = the first {k} items of {x}
        = the first {k} elements of {x}
        --
        keep only the first {k} entries of {x}
    """),
    _recipe("last", "list", "return {x}[-{k}:]", """
        = the last {k} items of {x}
        = the last {k} elements of {x}
        --
        keep only the last {k} entries of {x}
    """),
    _recipe("append", "list", "return {x} + [{k}]", """
        add {k} to the end of {x}
        append {k} to {x}
        --
        put {k} behind the last item of {x}
    """),
    _recipe("contains", "list", "return {k} in {x}", """
        ? {x} contains {k}
        ? {k} is in {x}
        --
        ? {k} occurs in {x}
    """),
    _recipe("keep", "list", _LOOP.format("item > {k}"), """
        keep the items of {x} greater than {k}
        = the items of {x} that are greater than {k}
        --
        pick everything above {k} from {x}
    """),
    _recipe("drop", "list", _LOOP.format("item != {k}"), """
        remove every {k} from {x}
        = {x} without any {k}
        --
        throw each {k} out of {x}
    """),
    _recipe("count", "list", _COUNT.format("item == {k}"), """
        count how often {k} is in {x}
        = how many times {k} is in {x}
        --
        = the number of times that {k} occurs in {x}
    """),
    _recipe("count_less", "list", _COUNT.format("item < {k}"), """
        count the items of {x} less than {k}
        = the number of items of {x} that are less than {k}
        --
        = how many items of {x} are below {k}
    """),
    _recipe("sum_greater", "list", _SUM.format("item > {k}"), """
        sum the items of {x} greater than {k}
        = the sum of the items of {x} that are greater than {k}
        --
        add everything above {k} in {x}
    """),
    _recipe("sum_multiples", "list", _SUM.format("item % {k} == 0"), """
        sum the items of {x} divisible by {k}
        = the sum of the items of {x} that are divisible by {k}
        --
        add all multiples of {k} in {x}
    """),
    _recipe("evens", "list", _LOOP.format("item % 2 == 0"), """
        keep the even items of {x}
        = the even items of {x}
        --
        drop whatever is odd from {x}
    """),
    _recipe("squares", "list", _EACH.format("item ** 2"), """
        square each item of {x}
        = the squares of the items of {x}
        --
        replace each item of {x} by its square
    """),
    _recipe("add_each", "list", _EACH.format("item + {k}"), """
        add {k} to each item of {x}
        add {k} to every item of {x}
        --
        make each item of {x} larger by {k}
    """),
    _recipe("times_each", "list", _EACH.format("item * {k}"), """
        multiply each item of {x} by {k}
        multiply every item of {x} by {k}
        --
        scale all items of {x} by {k}
    """),
    _recipe("repeat", "string", "return {x} * {k}", """
        repeat {x} {k} times
        = {x} repeated {k} times
        --
        write {x} {k} times in a row
    """),
    _recipe("longer", "string", "return len({x}) > {k}", """
        ? {x} is longer than {k}
        ? {x} has more than {k} letters
        --
        ? {x} takes more than {k} characters
    """),
    _recipe("cut", "string", "return {x}[:{k}]", """
        = the first {k} letters of {x}
        = the first {k} characters of {x}
        --
        cut {x} after {k} letters
    """),
    _recipe("string_length", "string", "return len({x})", """
        = the length of {x}
        count the letters of {x}
        = the number of characters in {x}
        --
        = how many letters {x} has
    """),
    _recipe("upper", "string", "return {x}.upper()", """
        = {x} in upper case
        change {x} to upper case
        convert {x} to upper case
        --
        write {x} in capital letters
    """),
    _recipe("lower", "string", "return {x}.lower()", """
        = {x} in lower case
        change {x} to lower case
        convert {x} to lower case
        --
        write {x} in small letters
    """),
    _recipe("backwards", "string", "return {x}[::-1]", """
        reverse {x}
        = {x} in reverse
        = {x} backwards
        --
        = the letters of {x} from the end to the beginning
    """),
    _recipe("first_letter", "filled string", "return {x}[0]", """
        = the first letter of {x}
        = the first character of {x}
        --
        = the letter with which {x} begins
    """),
    _recipe("last_letter", "filled string", "return {x}[-1]", """
        = the last letter of {x}
        = the last character of {x}
        --
        = the letter with which {x} ends
    """),
)  # fmt: skip
