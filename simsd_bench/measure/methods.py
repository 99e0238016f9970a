"""The methods that are compared, by name, and the lengths of answers."""

from dataclasses import dataclass, replace

from simsd.messages.request import DecodeParams


@dataclass(frozen=True, slots=True)
class Protocol:
    """How long answers are: they end at EOS, and after `max_tokens` (512) at the latest.

    random_weights: the model has learnt nothing, so it ends an answer only by chance. Then EOS is off, and all answers
    have `max_tokens` (128). What a trained model decodes behind its end is padding, and never part of a measurement.
    The first `warm_up` prompts are decoded once before the measurement.
    """

    max_tokens: int | None = None
    warm_up: int = 3
    random_weights: bool = False

    def params(self) -> DecodeParams:
        length = self.max_tokens or (128 if self.random_weights else 512)
        return DecodeParams(max_tokens=length, ignore_eos=self.random_weights)

    def describe(self) -> str:
        length = self.params().max_tokens
        ends = f"EOS off (random weights), {length} tokens" if self.random_weights else f"at most {length} tokens"
        return f"greedy, {ends}, B denoising steps a block, {self.warm_up} warm-up prompts"


def methods(block_size: int, protocol: Protocol) -> dict[str, DecodeParams]:
    """Return name -> settings. The others are compared with the first.

    `simsd` and `exact` draft a whole block in one draft forward, which is fastest on the shipped pair. `simsd-steps`
    takes one forward for each token, as the paper does (section 4), and `simsd-sequential` drafts from left to right.
    S2D2 has dynamic remasking at .85 as in the paper, and cost 1.
    """
    base = protocol.params()
    vanilla, simsd = replace(base, method="vanilla"), replace(base, method="simsd", draft_steps=1)
    exact = replace(base, method="exact", draft_steps=1)
    s2d2 = replace(base, method="s2d2", remasking="dynamic", threshold=0.85)
    return {
        "vanilla-static": vanilla,
        "vanilla-dynamic": replace(vanilla, remasking="dynamic", threshold=0.9),
        "vanilla-sequential": replace(vanilla, remasking="sequential"),
        "simsd": simsd,
        "simsd-steps": replace(simsd, draft_steps=block_size),
        "simsd-sequential": replace(simsd, remasking="sequential"),
        "simsd-branches": replace(simsd, layout="branches"),
        "simsd-self": replace(simsd, drafter="self"),
        "exact": exact,
        "exact-sequential": replace(exact, remasking="sequential"),
        "exact-self": replace(exact, drafter="self"),
        "s2d2-span": s2d2,
        "s2d2-score": replace(s2d2, routing="score"),
        "s2d2-score-entropy": replace(s2d2, routing="score", routing_score="entropy"),
        "s2d2-hysteresis": replace(s2d2, routing="hysteresis"),
        "s2d2-ucb": replace(s2d2, routing="ucb"),
        "simsd-adaptive": replace(base, method="simsd", adaptive=True),
    }


METHODS = tuple(methods(4, Protocol()))
