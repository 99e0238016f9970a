"""S2D2's routing: whether a span that the target drafted for itself is worth a verification (docs/algorithm.md)."""

import dataclasses
import math

from simsd.block.remasking import quota
from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import BlockVerdict, Proposal

HYSTERESIS = 1.0
"""How far below zero the score must fall before `hysteresis` stops verifying. It starts when the score is above 0."""


class Router:
    """The decisions of one sequence. A verification costs a forward; without it the draft step's own reveals stand.

    The policy `span` always verifies. `score` verifies if the expected number of accepted tokens exceeds
    `routing_cost`. `hysteresis` is the same with memory, so that it does not change from round to round. `ucb` takes
    the better of both arms by UCB1, rewarded with tokens a forward.

    The attribute `span` is the span that the next round verifies, or None.
    """

    def __init__(self, params: DecodeParams) -> None:
        self._policy, self._cost, self._steps = params.routing, params.routing_cost, params.steps
        self.span: Proposal | None = None
        self._held = BlockVerdict()
        self._verifying = True
        self._rounds = [0, 0]
        self._rewards = [0.0, 0.0]

    def route(self, decided: BlockVerdict, proposal: Proposal | None, block: BlockState) -> BlockVerdict:
        """Return what stands of the verdict `decided` about `block`, the block as it was before the verdict.

        The verdict of a draft step comes with a `proposal`. If the span is to be verified, the step's reveals are held
        back. After the verification they fill up what the step still has to reveal.
        """
        if proposal is not None:
            if self.verify(proposal.blocks[0].confidence):
                self.span, self._held = proposal, decided
                return BlockVerdict()
            self.learn(False, len(decided.reveals), block.size)
        elif decided.reveals and self.span is not None:
            self.span = None
            self.learn(True, len(decided.reveals), block.size)
            return self._filled_up(decided, block)
        return decided

    def _filled_up(self, decided: BlockVerdict, block: BlockState) -> BlockVerdict:
        """Add reveals that were held back, until the block has as many as the draft step had to reveal."""
        filled = dataclasses.replace(
            decided, reveals=list(decided.reveals), kinds=list(decided.kinds), logprobs=list(decided.logprobs)
        )
        owed, taken = min(quota(block.step, self._steps, block.size), block.left), {o for o, _ in decided.reveals}
        for i, (offset, token) in enumerate(self._held.reveals):
            if len(filled.reveals) < owed and offset not in taken:
                filled.reveals.append((offset, token))
                filled.kinds.append(self._held.kinds[i])
                filled.logprobs += self._held.logprobs[i : i + 1]
        return filled

    def verify(self, agreement: list[float]) -> bool:
        """Decide whether to verify a span.

        agreement: the chance of acceptance of each token of the span, from left to right; it is not empty.
        """
        score = expected_accepted(agreement) - self._cost
        if self._policy == "score":
            self._verifying = score > 0
        elif self._policy == "hysteresis":
            self._verifying = score > 0 or (self._verifying and score > -HYSTERESIS)
        elif self._policy == "ucb":
            self._verifying = self._upper_bound(1) >= self._upper_bound(0)
        return self._verifying

    def learn(self, verified: bool, revealed: int, block_size: int) -> None:
        """Learn that the last decision revealed `revealed` tokens, in two forwards if it verified, else in one."""
        self._rounds[verified] += 1
        self._rewards[verified] += revealed / (2 if verified else 1) / block_size

    def _upper_bound(self, arm: int) -> float:
        if not self._rounds[arm]:
            return math.inf
        return self._rewards[arm] / self._rounds[arm] + math.sqrt(2 * math.log(sum(self._rounds)) / self._rounds[arm])


def expected_accepted(agreement: list[float]) -> float:
    """Return E[K], the sum over k of the product of the first k chances of acceptance."""
    expected, chance = 0.0, 1.0
    for a in agreement:
        chance *= a
        expected += chance
    return expected
