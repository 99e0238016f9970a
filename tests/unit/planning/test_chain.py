"""The chain over an answer's positions: by hand, against simulation, and against the chain of a single block."""

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsd.errors import ConfigError
from simsd.planning.capacity import Speculation
from simsd.planning.chain import (
    Counts,
    Depths,
    Dynamic,
    LeftToRight,
    Method,
    States,
    Static,
    count,
    dynamic_steps,
    reveals,
    share_of,
    verification,
)

ANSWERS = 4000


def test_two_blocks_of_two_by_hand() -> None:
    """B = 2, half the tokens stand, one block ahead: 1, 2, 3 or 4 tokens with .5, .25, .125 and .125."""
    found = verification(LeftToRight(0.5), (2, 2))
    assert found.stops.tolist() == [0, 0.5, 0.25, 0.125, 0.0625]
    assert found.stands == 0.0625
    counts = count(LeftToRight(0.5), 2, 0, 4, Depths.always(1))
    # Rounds begin after 0 positions; after 1 with .5; after 2 with .25 + .5 x .5; after 3 with .125 + .25 + .25.
    begin = {0: 1.0, 1: 0.5, 2: 0.5, 3: 0.125 + 0.5 * 0.25 + 0.5 * 0.5}
    assert counts.rounds == sum(begin.values())
    # Two blocks are left before position 2. At position 2 the first block is owed to the cache, whoever filled it.
    assert counts.by_blocks == (0, begin[2] + begin[3], begin[0] + begin[1])
    assert counts.committed == begin[2]
    assert counts.rows == begin[0] * (4 + 4) + begin[1] * (3 + 4) + begin[2] * 4 + begin[3] * 3
    assert counts.logits == begin[0] * 4 + begin[1] * 3 + begin[2] * 2 + begin[3]
    assert counts.target_rows(2) == counts.rows + 2 * (begin[0] + begin[1] + begin[2])
    assert counts.draft_rows(2, 1) == 2 * (2 * (begin[0] + begin[1]) + begin[2] + begin[3] + counts.kept)
    # The first round begins anew, and so does every other: to go on, a chain would have to stand before the end.
    assert counts.anew == counts.rounds


def test_a_dynamic_step_by_hand() -> None:
    assert reveals(0.5, 2).tolist() == [0, 0.75, 0.25]
    assert reveals(0.0, 3).tolist() == [0, 1, 0, 0]
    assert dynamic_steps(0.5, 2, 0, 2) == 1.75
    assert dynamic_steps(0.5, 2, 1, 3) == 1 + 1.75


def test_a_walk_by_hand() -> None:
    """Two open, each sure with .5; tokens agree with .8; of the states with one token left, half are looked at."""
    two = States(acceptance=0.8, share=0.5, draft_share=0.5, foreseen=0.5, states=2).fate(2)
    # both at once: .25, and .64 of that stands; one first: .75, of which .8 agrees and half goes on to the other
    assert two.stands == pytest.approx(0.25 * 0.64 + 0.75 * 0.8 * 0.5 * 0.8)
    assert two.stops.tolist() == pytest.approx([0, 0.75 * (0.2 + 0.8 * 0.5), 0.25 * 0.36 + 0.75 * 0.8 * 0.5 * 0.2])
    assert States(0.8, 0.5, 0.5, 0.5, states=1).fate(2).stops[1] == pytest.approx(0.75)
    # The draft is sure of both with .25, and looks at one state; else there is one more, with one position open.
    method = States(0.8, 0.9, draft_share=0.5)
    assert method.rows(2, 4) == pytest.approx(4 * 1.75)
    assert method.logits(2) == pytest.approx(2 + 0.75)
    assert States(0.8, 0.9, draft_share=0.0, states=3).rows(8, 8) == 24


def test_the_answers_end() -> None:
    """Nothing is drafted behind the last block; what static reveals first may lie behind the end."""
    sure = LeftToRight(1.0)
    assert count(sure, 4, 0, 16, Depths.always(1)).by_blocks == (0, 0, 2)
    assert count(sure, 4, 0, 16, Depths.always(2)).by_blocks == (0, 1, 0, 1)
    assert count(sure, 4, 3, 14, Depths.always(8)).by_blocks == (0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
    assert count(sure, 4, 3, 14, Depths.always(0)).rounds == 5
    assert count(Static(), 4, 2, 3, Depths.always(0)).rounds == 6
    assert count(Static(2), 4, 0, 9, Depths.always(0)).rounds == 6
    assert count(Dynamic(0.0), 4, 2, 3, Depths.always(0)).rounds == 3


@dataclass
class Tally:
    """What simulated rounds took, summed over answers."""

    rounds: int = 0
    blocks: int = 0
    anew: int = 0
    committed: int = 0


def simulate(method: Method, block_size: int, first: int, positions: int, depths: Depths) -> Tally:
    """Decode answers block by block, with tokens, sure positions and looked-at states that are drawn one by one."""
    chance, tally, end = random.Random(5), Tally(), first + positions
    for _ in range(ANSWERS):
        done, depth, fresh = first, depths.anew, True
        while done < end:
            tally.rounds += 1
            tally.anew += fresh
            tally.committed += done > first and done % block_size == 0
            last = min(done // block_size + depth, (end - 1) // block_size)
            tally.blocks += last - done // block_size + 1
            stands = True
            while stands and done < end and done // block_size <= last:
                stop = min(end, (done // block_size + 1) * block_size)
                revealed, stands = one_block(method, stop - done, chance)
                done += revealed
            fresh, depth = not stands, depths.on[depth] if stands else depths.anew
    return tally


def one_block(method: Method, opened: int, chance: random.Random) -> tuple[int, bool]:
    """Return (positions revealed, whether the block stands as drafted)."""
    if isinstance(method, LeftToRight):
        for revealed in range(opened):
            if chance.random() >= method.acceptance:
                return revealed + 1, False
        return opened, True
    assert isinstance(method, States)
    left = opened
    for state in range(method.states):
        taken = max(1, sum(chance.random() < method.share for _ in range(left)))
        agreed = all(chance.random() < method.acceptance for _ in range(taken))
        left -= taken
        if not agreed:
            return opened - left, False
        if not left:
            return opened, True
        if chance.random() >= method.foreseen or state == method.states - 1:
            break
    return opened - left, False


@pytest.mark.parametrize("depths", [*map(Depths.always, (0, 1, 3)), Depths(0, (2, 1, 1))], ids=str)
@pytest.mark.parametrize(
    "method", [LeftToRight(0.9), LeftToRight(0.5), States(0.9, 0.7, 0.7, 0.6, 3), States(0.97, 0.9, 0.9, 0.5)], ids=str
)
def test_against_simulation(method: Method, depths: Depths) -> None:
    for block_size, first, positions in ((4, 1, 30), (8, 0, 37)):
        found, drawn = (each(method, block_size, first, positions, depths) for each in (count, simulate))
        assert isinstance(found, Counts)
        for name in ("rounds", "blocks", "anew", "committed"):
            assert getattr(found, name) == pytest.approx(getattr(drawn, name) / ANSWERS, rel=0.02, abs=0.02), name


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
@pytest.mark.parametrize("acceptance", [0.5, 0.9, 0.98])
def test_long_answers_come_at_the_closed_form(acceptance: float, depth: int) -> None:
    """docs/capacity.md: (1 - a^n) / (1 - a) tokens if n are drafted, in the mean over where a round begins."""
    size = 4
    drafted = [size * (depth + 1) - at for at in range(size)]
    moves = np.zeros((size, size))
    for at, n in enumerate(drafted):
        for k in range(n):
            moves[at, (at + k + 1) % size] += acceptance**k * (1 - acceptance)
        moves[at, 0] += acceptance**n
    stationary = np.linalg.matrix_power(moves, 1000)[0]
    closed = sum(part * (1 - acceptance**n) / (1 - acceptance) for part, n in zip(stationary, drafted, strict=True))
    long, short = (count(LeftToRight(acceptance), size, 0, n, Depths.always(depth)) for n in (4000, 2000))
    assert 2000 / (long.rounds - short.rounds) == pytest.approx(closed, rel=1e-6)


@pytest.mark.parametrize(("block_size", "acceptance"), [(4, 0.9), (8, 0.6), (16, 1.0)])
def test_without_lookahead_it_is_the_chain_of_a_block(block_size: int, acceptance: float) -> None:
    """Ten blocks, of which nine are committed; drafted at once, as `Speculation` has it."""
    block = Speculation(block_size, block_size, 1, acceptance)
    answer = count(LeftToRight(acceptance), block_size, 0, 10 * block_size, Depths.always(0))
    assert answer.rounds == pytest.approx(10 * block.rounds)
    assert answer.committed == pytest.approx(9)
    assert answer.target_rows(block_size) == pytest.approx(10 * block.rounds * block.verify_rows - block_size)
    assert answer.draft_rows(block_size, 1) == pytest.approx(10 * block.rounds * block.draft_rows - block_size)
    assert answer.logits == pytest.approx(10 * block.rounds * block.open_positions)


@given(
    method=st.one_of(
        st.builds(LeftToRight, st.floats(0, 1)),
        st.builds(States, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 5)),
        st.builds(Dynamic, st.floats(0, 1)),
        st.builds(Static, st.integers(1, 3)),
    ),
    opened=st.integers(1, 9),
)
@settings(max_examples=80, deadline=None)
def test_every_verification_reveals(method: Method, opened: int) -> None:
    fate = method.fate(opened)
    assert fate.stops.sum() + fate.stands == pytest.approx(1)
    assert fate.stops.min() >= 0
    assert fate.stops[0] == 0
    assert opened <= method.logits(opened) + 1e-9
    assert method.rows(opened, 9) >= 9


def test_deeper_takes_fewer_rounds_and_more_rows() -> None:
    for method in (LeftToRight(0.9), States(0.9, 0.8, 0.8)):
        counts = [count(method, 4, 0, 64, Depths.always(depth)) for depth in range(5)]
        assert all(b.rounds < a.rounds for a, b in pairwise(counts))
        assert all(b.target_rows(4) > a.target_rows(4) for a, b in pairwise(counts))


def test_sums() -> None:
    one, other = (count(LeftToRight(0.5), 4, 0, 12, Depths.always(depth)) for depth in (0, 2))
    total = Counts.sum([one, other])
    assert total.rounds == pytest.approx(one.rounds + other.rounds)
    assert total.blocks == pytest.approx(one.blocks + other.blocks)
    assert total.target_rows(4) == pytest.approx(one.target_rows(4) + other.target_rows(4))


def test_the_share_is_found_again() -> None:
    steps = dynamic_steps(0.83, 8, 0, 8)
    assert share_of(lambda share: dynamic_steps(share, 8, 0, 8), steps) == pytest.approx(0.83, abs=1e-6)
    assert share_of(lambda share: dynamic_steps(share, 8, 0, 8), 0.5) == pytest.approx(1, abs=1e-6)
    assert share_of(lambda share: dynamic_steps(share, 8, 0, 8), 9.0) == pytest.approx(0, abs=1e-6)


def test_what_cannot_be_is_refused() -> None:
    for call in (
        lambda: LeftToRight(1.1),
        lambda: Dynamic(-0.1),
        lambda: States(0.9, 0.9, 0.9, 2.0),
        lambda: replace(States(0.9, 0.9, 0.9), states=0),
        lambda: Depths.always(9),
        lambda: count(Dynamic(0.5), 4, 4, 10, Depths.always(0)),
        lambda: count(Dynamic(0.5), 4, 0, 0, Depths.always(0)),
    ):
        with pytest.raises(ConfigError):
            call()
