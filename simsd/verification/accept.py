"""The accept rules in plain Python, over numbers that were read from logits once for a whole batch.

*accepted*: a drafted token that stands. *recovered*: the target's token at the first rejection. *bonus*: one more token
of the target after full acceptance. *denoised*: revealed by the target's own step.
"""

from dataclasses import dataclass, field

from simsd.block.remasking import choose
from simsd.messages.request import DecodeParams, RevealKind
from simsd.messages.round import DraftedBlock


@dataclass(slots=True)
class Slots:
    """The logits rows of one block state: its open offsets, ascending, and the row of each."""

    offsets: list[int]
    rows: list[int]

    def of(self, values: list[float]) -> list[float]:
        return [values[row] for row in self.rows]


@dataclass(slots=True)
class Scores:
    """What remasking and accept read, one entry per logits row (plain lists of length M).

    token: the sampled token (the best one at temperature 0) · confidence: its probability · top: the highest
    probability · entropy: nats, of all rows or, if none is remasked by it, of none.
    """

    token: list[int]
    confidence: list[float]
    top: list[float]
    entropy: list[float]


@dataclass(slots=True)
class TokenTests:
    """Of each drafted token in step order: whether it stands, and the target's token in its place if it does not."""

    stands: list[bool]
    instead: list[int]


@dataclass(slots=True)
class Decision:
    """What is decided of one block, reveal by reveal: (offset, token), kind and the logits row that it was read from.

    context: the rows of the state in which the block was left, where the target looked at it.
    """

    reveals: list[tuple[int, int]] = field(default_factory=list)
    kinds: list[RevealKind] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    steps: int = 0
    drafted: int = 0
    context: Slots | None = None

    def reveal(self, offset: int, token: int, kind: RevealKind, row: int) -> None:
        self.reveals.append((offset, token))
        self.kinds.append(kind)
        self.rows.append(row)


def keep_prefix(decision: Decision, drafted: DraftedBlock, rows: list[int], tests: TokenTests) -> bool:
    """Keep the longest accepted prefix in step order; the target's token at the first rejection. True if all stood.

    rows: the logits row that tested each drafted token.
    """
    decision.drafted = len(drafted.offsets)
    for i, (offset, token) in enumerate(drafted.entries()):
        decision.steps += 1
        if not tests.stands[i]:
            decision.reveal(offset, tests.instead[i], "recovered", rows[i])
            return False
        decision.reveal(offset, token, "accepted", rows[i])
    return True


def add_bonus(decision: Decision, params: DecodeParams, slots: Slots, scores: Scores) -> None:
    """One more token, at the target's surest undrafted position; with sequential remasking at the leftmost one.

    The position is picked from the distribution, not from the sample.
    """
    if not slots.offsets:
        return
    top = slots.of(scores.top)
    best = 0 if params.remasking == "sequential" else max(range(len(top)), key=lambda i: (top[i], -i))
    decision.reveal(slots.offsets[best], scores.token[slots.rows[best]], "bonus", slots.rows[best])
    decision.steps += 1


def denoise_step(
    params: DecodeParams, step: int, block_size: int, slots: Slots, scores: Scores
) -> list[tuple[int, int, int]]:
    """The target's own next step: (offset, token, logits row) of what it reveals, surest first."""
    entropy = slots.of(scores.entropy) if params.remasking == "entropy" else []
    chosen = choose(params, step, block_size, slots.offsets, slots.of(scores.confidence), entropy)
    return [(slots.offsets[i], scores.token[slots.rows[i]], slots.rows[i]) for i in chosen]


def walk(
    params: DecodeParams,
    step: int,
    block_size: int,
    drafted: DraftedBlock,
    states: dict[int, Slots],
    scores: Scores,
) -> Decision:
    """Follow the target's own transitions from state 0 for as long as they lead to a state that was looked at.

    `states`: bitmask over the drafted entries -> the logits rows of that block state.
    """
    decision = Decision(drafted=len(drafted.offsets))
    entry = {offset: i for i, offset in enumerate(drafted.offsets)}
    state, foreseen = 0, True
    while foreseen and state in states:
        decision.context = states[state]
        for offset, token, row in denoise_step(params, step + decision.steps, block_size, states[state], scores):
            kind: RevealKind = "bonus"
            if offset in entry:
                state |= 1 << entry[offset]
                kind = "accepted" if drafted.tokens[entry[offset]] == token else "recovered"
            decision.reveal(offset, token, kind, row)
            foreseen &= kind == "accepted"
        decision.steps += 1
    return decision
