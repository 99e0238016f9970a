"""The accept rules (docs/algorithm.md) in plain Python, over numbers that were read from the logits of a whole batch.

*accepted*: a drafted token that stands. *recovered*: the target's token in place of a rejected one. *bonus*: a token of
the target at a position that was not drafted. *denoised*: a token that the target revealed without a draft.
"""

from dataclasses import dataclass, field

from simsd.block.remasking import choose
from simsd.messages.request import DecodeParams, RevealKind
from simsd.messages.round import DraftedBlock


@dataclass(slots=True)
class Slots:
    """The logits rows of one block state: its open offsets, in ascending order, and the logits row of each."""

    offsets: list[int]
    rows: list[int]

    def of(self, values: list[float]) -> list[float]:
        return [values[row] for row in self.rows]


@dataclass(slots=True)
class Scores:
    """What remasking and the accept rules read: lists of length M, with one entry for each logits row.

    token: the sampled token, or the best one at temperature 0. confidence: its probability. top: the highest
    probability of any token. entropy: in nats; the list is empty if no request remasks by entropy. All three are of the
    model's distribution after biases and temperature, before min-p, top-k and top-p, with which any token can be made
    certain.
    """

    token: list[int]
    confidence: list[float]
    top: list[float]
    entropy: list[float]


@dataclass(slots=True)
class TokenTests:
    """The tests of drafted tokens, in step order.

    rows: the logits row of each. stands: whether the token stands. instead: the target's token to replace it if not.
    """

    rows: list[int]
    stands: list[bool]
    instead: list[int]


@dataclass(slots=True)
class Decision:
    """What is decided about one block.

    reveals: (offset, token), in the order of their reveal. kinds, rows: the kind of each, and the logits row that it
    was read from. steps: denoising steps that were taken. drafted: the number of tokens that were drafted for it.
    context: the logits rows of the state in which the block was left; None if the target did not look at that state.
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


def keep_prefix(decision: Decision, drafted: DraftedBlock, tests: TokenTests) -> bool:
    """Keep the drafted tokens before the first rejection, in step order, and take the target's token there.

    Returns whether all drafted tokens stand (paper, section 3).
    """
    decision.drafted = len(drafted.offsets)
    judged = zip(tests.rows, tests.stands, tests.instead, strict=True)
    for (offset, token), (row, stands, instead) in zip(drafted.entries(), judged, strict=True):
        decision.steps += 1
        if not stands:
            decision.reveal(offset, instead, "recovered", row)
            return False
        decision.reveal(offset, token, "accepted", row)
    return True


def add_bonus(decision: Decision, params: DecodeParams, slots: Slots, scores: Scores) -> None:
    """Reveal one more token at the target's surest undrafted position, or at the leftmost with sequential remasking.

    The position is picked by the highest probability of any token, not by that of the sampled token. Nothing is
    revealed if `slots` has no open position, or under the paper's rule, `fallback: target`: a bonus would leave fewer
    than gamma positions open, which the target would then have to denoise one by one.
    """
    if not slots.offsets or params.fallback == "target":
        return
    top = slots.of(scores.top)
    best = 0 if params.remasking == "sequential" else max(range(len(top)), key=lambda i: (top[i], -i))
    decision.reveal(slots.offsets[best], scores.token[slots.rows[best]], "bonus", slots.rows[best])
    decision.steps += 1


def denoise_step(
    params: DecodeParams, step: int, block_size: int, slots: Slots, scores: Scores
) -> list[tuple[int, int, int]]:
    """Take the target's own denoising step. It returns (offset, token, logits row) of each reveal, surest first."""
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
    """Follow the target's own denoising steps from state 0 for as long as they lead to a state of `states`.

    states: the logits rows of each verified block state, by its bitmask over the drafted tokens. The last step stands
    even if it leads out of `states`, so the text is that of the target alone (docs/algorithm.md).
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
