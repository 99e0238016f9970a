"""Who is asked: by what was sent where, within a bound on how much busier the one with the prefix may be."""

import random

from deployments.prefix_routing import PAGE_TOKENS, SLACK, PrefixTable, preferred

P = PAGE_TOKENS


def test_the_longest_prefix_in_whole_pages() -> None:
    table: PrefixTable[str] = PrefixTable()
    common = list(range(3 * P))
    table.note(common, "a")
    table.note(common[:P] + [-1] * P, "b")
    assert table.longest([*common, 5], "ab") == {"a"}
    assert table.longest(common[: 2 * P - 1], "ab") == {"a", "b"}
    assert table.longest(common, "b") == {"b"}
    assert table.longest([*common[:P], *[-1] * P, *common], "ab") == {"b"}
    assert table.longest(common[: P - 1], "ab") == set()
    assert table.longest(common[1:], "ab") == set()
    assert table.longest(common, "c") == set()


def test_against_comparing_prompts() -> None:
    draw = random.Random(7)
    prompts = [[draw.randrange(2) for _ in range(draw.randrange(4)) for _ in range(P)] for _ in range(60)]
    table: PrefixTable[int] = PrefixTable()
    for prompt in prompts:
        prompt[:] = [token for i in range(0, len(prompt), P) for token in [prompt[i]] * P]
    seen: list[tuple[list[int], int]] = []
    for number, prompt in enumerate(prompts):
        shared = {
            place: max(common(prompt, other) for other, its in seen if its == place)
            for place in {its for _, its in seen}
        }
        most = max(shared.values(), default=0)
        assert table.longest(prompt, range(3)) == {place for place, pages in shared.items() if pages == most > 0}
        table.note(prompt, number % 3)
        seen.append((prompt, number % 3))


def common(a: list[int], b: list[int]) -> int:
    """Whole pages that both begin with."""
    pages = 0
    while len(a) >= (pages + 1) * P and a[pages * P : (pages + 1) * P] == b[pages * P : (pages + 1) * P]:
        pages += 1
    return pages


def test_pages_seen_longest_ago_are_forgotten() -> None:
    table: PrefixTable[str] = PrefixTable(limit=2)
    first, second, third = ([token] * P for token in (1, 2, 3))
    table.note(first, "a")
    table.note(second, "a")
    table.note(first, "a")
    table.note(third, "a")
    assert [bool(table.longest(prompt, "a")) for prompt in (first, second, third)] == [True, False, True]


def test_imbalance_is_bounded() -> None:
    assert preferred({"a"}, {"a": SLACK, "b": 0}) == "a"
    assert preferred({"a"}, {"a": SLACK + 1, "b": 0}) is None
    assert preferred({"a", "b"}, {"a": 2, "b": 1, "c": 0}) == "b"
    assert preferred([], {"a": 0}) is None
