"""Pages: never lost, never in two places, never overwritten while someone reads them, and shared only if equal."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from simsd.errors import InternalError
from simsd.forward.pages import PagePool, SequenceKV
from simsd.messages.worker import PageUse

PAGE, BLOCK, PAGES = 4, 2, 7
blocks = st.lists(st.lists(st.sampled_from([0, 1]), min_size=BLOCK, max_size=BLOCK), max_size=8)


def flat(parts: list[list[int]]) -> list[int]:
    return [token for part in parts for token in part]


class PoolMachine(RuleBasedStateMachine):
    """Opens, advances and releases sequences over few pages and two tokens, so that sharing and eviction are common.

    `memory` plays the KV tensor: a slot holds the tokens up to and with its own, which is what its KV depends on.
    """

    cache = True

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES, PAGE, self.cache)
        self.memory: dict[int, tuple[int, ...]] = {}
        self.wanted: dict[str, list[int]] = {}
        self.total: dict[str, int] = {}
        self.opened = 0

    sequences = Bundle("sequences")

    def write(self, sequence: SequenceKV, tokens: list[int]) -> None:
        """What a forward does before `advance`: put the KV of `tokens` into the sequence's next slots."""
        known = list(sequence.tokens)
        for slot in sequence.slots[len(known) : len(known) + len(tokens)].tolist():
            holders = [s for s in self.pool.sequences.values() if slot // PAGE in s.pages]
            assert holders == [sequence], "a page that is written to is read by another sequence"
            known.append(tokens[len(known) - len(sequence.tokens)])
            self.memory[slot] = tuple(known)

    def held_pages(self) -> set[int]:
        return {page for sequence in self.pool.sequences.values() for page in sequence.pages}

    @rule(target=sequences, prompt=blocks, answer=st.integers(0, 3))
    def open(self, prompt: list[list[int]], answer: int) -> object:
        tokens = flat(prompt)
        total = len(tokens) + answer * BLOCK
        name, self.opened = f"s{self.opened}", self.opened + 1
        hits = [page for page, _ in self.pool.prefix.match(tokens)] if self.pool.prefix else []
        before = self.pool.use()
        room = PAGES - len(self.held_pages() | set(hits))
        if -(-total // PAGE) - len(hits) > room:
            with pytest.raises(InternalError, match=name):
                self.pool.open(name, total, tokens)
            assert self.pool.use() == before
            return multiple()
        sequence = self.pool.open(name, total, tokens)
        assert sequence.pages[: len(hits)] == hits
        assert len(sequence.pages) == -(-total // PAGE)
        assert len(set(sequence.pages)) == len(sequence.pages)
        assert len(sequence.slots) == len(sequence.pages) * PAGE
        assert sequence.prefix_hit == len(sequence.tokens) == len(hits) * PAGE
        assert sequence.tokens == tokens[: sequence.prefix_hit]
        self.wanted[name], self.total[name] = tokens, total
        return name

    @rule(name=sequences, count=st.integers(1, 4), answer=blocks)
    def advance(self, name: str, count: int, answer: list[list[int]]) -> None:
        sequence = self.pool.sequences[name]
        rest = self.wanted[name][len(sequence.tokens) :] or flat(answer)
        tokens = rest[: min(count * BLOCK, self.total[name] - len(sequence.tokens))]
        self.write(sequence, tokens)
        self.pool.advance(sequence, tokens)

    @rule(name=sequences, drafted=blocks, agree=st.integers(0, 3), known=blocks)
    def assume(self, name: str, drafted: list[list[int]], agree: int, known: list[list[int]]) -> None:
        """Blocks are taken for granted behind the committed ones; then `agree` of them and others come to stand."""
        sequence = self.pool.sequences[name]
        if len(sequence.tokens) < len(self.wanted[name]):
            return
        before, room = list(sequence.tokens), self.total[name] - len(sequence.tokens)
        assumed = flat(drafted)[:room]
        stand = (assumed[: agree * BLOCK] + flat(known))[:room]
        self.write(sequence, assumed)
        sequence.assumed = list(assumed)
        self.pool.settle(sequence, stand, [], BLOCK)
        same = 0
        while same < min(len(assumed), len(stand)) and assumed[same : same + BLOCK] == stand[same : same + BLOCK]:
            same += BLOCK
        assert sequence.tokens == before + stand[:same]
        assert sequence.assumed == []

    @rule(name=consumes(sequences))
    def release(self, name: str) -> None:
        self.pool.release(name)
        assert name not in self.pool.sequences

    @rule()
    def release_unknown(self) -> None:
        before = self.pool.use()
        self.pool.release("never opened")
        assert self.pool.use() == before

    @invariant()
    def integrity(self) -> None:
        self.pool.check_integrity()

    @invariant()
    def pages_add_up(self) -> None:
        use = self.pool.use()
        assert use.held == len(self.held_pages())
        assert use.held + use.cached + use.free == PAGES
        assert use.sequences == len(self.pool.sequences)

    @invariant()
    def committed_kv_is_what_the_sequence_committed(self) -> None:
        """Shared prefixes are really equal content, and nobody overwrote them."""
        for sequence in self.pool.sequences.values():
            for index, slot in enumerate(sequence.slots[: len(sequence.tokens)].tolist()):
                assert self.memory[slot] == tuple(sequence.tokens[: index + 1])

    @invariant()
    def whatever_matches_is_equal_content(self) -> None:
        if self.pool.prefix is None:
            return
        for tokens in self.wanted.values():
            for index, (page, _) in enumerate(self.pool.prefix.match(tokens)):
                assert self.memory[page * PAGE + PAGE - 1] == tuple(tokens[: (index + 1) * PAGE])

    def teardown(self) -> None:
        for name in list(self.pool.sequences):
            self.pool.release(name)
        self.pool.check_integrity()
        assert self.pool.use().held == 0


class UncachedPoolMachine(PoolMachine):
    cache = False

    @invariant()
    def nothing_is_kept(self) -> None:
        assert self.pool.use().cached == 0


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
UncachedPoolMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestPool = PoolMachine.TestCase
TestUncachedPool = UncachedPoolMachine.TestCase


def filled(pool: PagePool, name: str, tokens: list[int]) -> SequenceKV:
    """A sequence that committed all of `tokens`."""
    sequence = pool.open(name, len(tokens), tokens)
    pool.advance(sequence, tokens[len(sequence.tokens) :])
    return sequence


def test_released_pages_are_found_again_and_wait_for_reuse() -> None:
    pool = PagePool(8, PAGE)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    first = filled(pool, "first", tokens)
    assert pool.use() == PageUse(held=3, cached=0, free=5, sequences=1)
    pool.release("first")
    assert pool.use() == PageUse(held=0, cached=2, free=6, sequences=0)  # the third page was not full
    again = pool.open("again", 12, tokens)
    assert again.pages[:2] == first.pages[:2]
    assert again.prefix_hit == 8
    assert pool.use() == PageUse(held=3, cached=0, free=5, sequences=1)


def test_running_sequences_share_full_pages() -> None:
    pool = PagePool(8, PAGE)
    first = filled(pool, "first", [1] * 8)
    second = pool.open("second", 16, [1] * 8 + [2] * 4)
    assert second.pages[:2] == first.pages[:2]
    assert pool.use().held == 4
    pool.release("first")
    assert pool.use() == PageUse(held=4, cached=0, free=4, sequences=1)
    pool.check_integrity()


@pytest.mark.parametrize(
    ("tokens", "hit"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9], 8),
        ([1, 2, 3, 4, 5, 6, 7, 8], 8),
        ([1, 2, 3, 4, 5, 6, 7], 4),  # half a page is no page
        ([1, 2, 3, 4, 0, 6, 7, 8], 4),
        ([0, 2, 3, 4, 5, 6, 7, 8], 0),
        ([5, 6, 7, 8], 0),  # the same tokens at another place are another context
        ([], 0),
    ],
)
def test_match_is_the_longest_equal_beginning(tokens: list[int], hit: int) -> None:
    pool = PagePool(8, PAGE)
    filled(pool, "first", [1, 2, 3, 4, 5, 6, 7, 8])
    assert pool.open("second", 12, tokens).prefix_hit == hit


def test_equal_pages_computed_twice_stay_private_and_one_is_kept() -> None:
    """Two sequences of one prompt that ran side by side: neither is disturbed, nothing is lost afterwards."""
    pool = PagePool(8, PAGE)
    a, b = pool.open("a", 8, [1] * 8), pool.open("b", 8, [1] * 8)
    assert not set(a.pages) & set(b.pages)
    pool.advance(a, [1] * 8)
    pool.advance(b, [1] * 8)
    pool.release("a")
    pool.release("b")
    pool.check_integrity()
    assert pool.use() == PageUse(held=0, cached=2, free=6, sequences=0)


def test_the_page_that_rested_longest_is_evicted_first() -> None:
    pool, content = PagePool(3, PAGE), {"a": [1] * PAGE, "b": [2] * PAGE, "c": [3] * PAGE}
    for name, tokens in content.items():
        filled(pool, name, tokens)
        pool.release(name)
    pool.open("again", PAGE, content["a"])  # used once more, and rests last
    pool.release("again")
    filled(pool, "other", [0] * PAGE)
    assert pool.prefix is not None
    assert [bool(pool.prefix.match(tokens)) for tokens in content.values()] == [True, False, True]
    pool.check_integrity()


def test_held_pages_are_never_evicted() -> None:
    pool = PagePool(3, PAGE)
    held = filled(pool, "held", [1] * 8)
    filled(pool, "rests", [2] * PAGE)
    pool.release("rests")
    other = pool.open("other", PAGE, [3] * PAGE)
    assert not set(other.pages) & set(held.pages)
    with pytest.raises(InternalError, match=r"1 pages needed for third, 0 free"):
        pool.open("third", PAGE, [4] * PAGE)
    assert "third" not in pool.sequences
    pool.check_integrity()


def test_a_hit_is_not_evicted_to_make_room_for_its_own_sequence() -> None:
    """The pages found are held before the others are taken; where that leaves too few, nothing changes."""
    pool = PagePool(3, PAGE)
    filled(pool, "first", [1] * 8)
    pool.release("first")
    sequence = pool.open("second", 12, [1] * 8)
    assert sequence.prefix_hit == 8
    assert len(set(sequence.pages)) == 3
    pool.release("second")
    before = pool.use()
    with pytest.raises(InternalError):
        pool.open("third", 16, [1] * 8)
    assert pool.use() == before
    pool.check_integrity()


def test_without_a_prefix_cache_nothing_is_shared() -> None:
    pool = PagePool(4, PAGE, prefix_cache=False)
    filled(pool, "first", [1] * 8)
    assert pool.open("second", 8, [1] * 8).prefix_hit == 0
    pool.release("first")
    assert pool.use() == PageUse(held=2, cached=0, free=2, sequences=1)


@pytest.mark.parametrize("damage", ["lost", "twice", "miscounted"])
def test_integrity_check_sees_damage(damage: str) -> None:
    pool = PagePool(6, PAGE)
    filled(pool, "a", [1] * 8)
    filled(pool, "b", [2] * PAGE)
    pool.release("b")
    pool.check_integrity()
    if damage == "lost":
        pool.free.pop()
    elif damage == "twice":
        pool.free.append(pool.sequences["a"].pages[0])
    else:
        pool.refs[pool.sequences["a"].pages[1]] += 1
    with pytest.raises(InternalError, match="page pool"):
        pool.check_integrity()


def test_assumed_blocks_are_committed_kept_or_forgotten() -> None:
    """Three blocks of two tokens are assumed behind one that is committed."""
    by_hand = [
        # what stands, what is still assumed, what is committed then, what is kept
        ([], [], [], []),
        ([1, 2], [], [1, 2], []),
        ([1, 2, 3, 4, 5, 6], [], [1, 2, 3, 4, 5, 6], []),
        ([1, 2, 3, 4, 5, 6, 7, 8], [], [1, 2, 3, 4, 5, 6], []),
        ([1, 2, 3, 9], [], [1, 2], []),  # KV depends on all tokens of a block
        ([1, 9, 3, 4], [], [], []),  # and on all blocks before it
        ([], [1, 2, 3, 4], [], [1, 2, 3, 4]),
        ([1, 2], [3, 4, 9, 9], [1, 2], [3, 4]),
        ([1, 2], [3, 4, 5, 6, 7, 8], [1, 2], [3, 4, 5, 6]),
    ]
    for stands, assumed, committed, kept in by_hand:
        pool = PagePool(4, PAGE)
        sequence = pool.open("a", 12, [])
        pool.advance(sequence, [0, 0])
        sequence.assumed = [1, 2, 3, 4, 5, 6]
        pool.settle(sequence, stands, assumed, BLOCK)
        assert (sequence.tokens, sequence.assumed) == ([0, 0, *committed], kept)
        assert sequence.length == 2 + len(committed) + len(kept)
        assert pool.prefix is not None
        shared = len(pool.prefix.match([0, 0, 1, 2, 3, 4, 5, 6]))
        assert shared == (2 + len(committed)) // PAGE
