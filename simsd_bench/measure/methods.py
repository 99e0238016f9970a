"""The methods that are compared, by name, and the lengths of answers."""

from dataclasses import dataclass, replace

from simsd.errors import ConfigError
from simsd.messages.request import DecodeParams


@dataclass(frozen=True, slots=True)
class Protocol:
    """How long answers are: `quality` ends them at EOS, and `latency` always decodes 128 tokens.

    The first `warm_up` prompts are decoded once before the measurement.
    """

    name: str = "quality"
    max_tokens: int | None = None
    warm_up: int = 3

    def __post_init__(self) -> None:
        if self.name not in ("quality", "latency"):
            raise ConfigError(f"protocol must be quality or latency; got {self.name!r}")

    def params(self) -> DecodeParams:
        latency = self.name == "latency"
        return DecodeParams(max_tokens=self.max_tokens or (128 if latency else 512), ignore_eos=latency)

    def describe(self) -> str:
        params = self.params()
        ends = "EOS off" if params.ignore_eos else "EOS on"
        length = f"at most {params.max_tokens} tokens, B denoising steps a block"
        return f"{self.name}: greedy, {ends}, {length}, {self.warm_up} warm-up prompts"


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
