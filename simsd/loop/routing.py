"""S2D2: whether a span that the target drafted for itself is worth a verification (paper.md, S2D2). Plain Python."""

import math

from simsd.messages.request import DecodeParams

HYSTERESIS = 1.0
"""How far below zero the score must fall before `hysteresis` stops verifying; it starts above zero."""


class Router:
    """One sequence's decisions. A verification costs a forward; not verifying takes the draft step's own reveals.

    span: always · score: if the expected number of accepted tokens, less `routing_cost`, is above zero · hysteresis:
    the same with memory, so that it does not flip from round to round · ucb: the better of two arms by UCB1, rewarded
    with tokens a forward.
    """

    def __init__(self, params: DecodeParams) -> None:
        self._policy, self._cost = params.routing, params.routing_cost
        self._verifying = True
        self._rounds = [0, 0]
        self._rewards = [0.0, 0.0]

    def verify(self, agreement: list[float]) -> bool:
        """`agreement`: the chance of acceptance of each token of the span, left to right; never empty."""
        score = expected_accepted(agreement) - self._cost
        if self._policy == "score":
            self._verifying = score > 0
        elif self._policy == "hysteresis":
            self._verifying = score > 0 or (self._verifying and score > -HYSTERESIS)
        elif self._policy == "ucb":
            self._verifying = self._upper_bound(1) >= self._upper_bound(0)
        return self._verifying

    def learn(self, verified: bool, revealed: int, block_size: int) -> None:
        """What the last decision brought: `revealed` tokens for two forwards, or for one."""
        self._rounds[verified] += 1
        self._rewards[verified] += revealed / (2 if verified else 1) / block_size

    def _upper_bound(self, arm: int) -> float:
        if not self._rounds[arm]:
            return math.inf
        return self._rewards[arm] / self._rounds[arm] + math.sqrt(2 * math.log(sum(self._rounds)) / self._rounds[arm])


def expected_accepted(agreement: list[float]) -> float:
    """E[K] = sum over k of the product of the first k chances."""
    expected, chance = 0.0, 1.0
    for a in agreement:
        chance *= a
        expected += chance
    return expected
