"""Decoding in this process, batch 1, several settings over the same prompts.

Protocol: tokens over decode time, prefill excluded; warm-up prompts dropped. All settings take a prompt in turn before
the next one comes, so a machine that slows down slows them alike, and ratios are of times taken seconds apart.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simsd.config import LoopConfig, WorkerConfig
from simsd.engine import Completion, build_local, generate_all
from simsd.eval.families import FAMILIES, Question
from simsd.eval.score import FamilyScore, family_score
from simsd.loop import Loop
from simsd.types import DecodeParams, Request

WARM_UP = 3


@dataclass(slots=True)
class Setting:
    """A line of a table: its name and how to decode."""

    name: str
    params: DecodeParams


@dataclass(slots=True)
class Result:
    """What a setting did. `ratios`: its tokens/s on each prompt over those of the first setting."""

    setting: Setting
    completions: list[Completion] = field(default_factory=list)
    correct: int = 0
    ratios: list[float] = field(default_factory=list)

    def total(self, name: str) -> float:
        return float(sum(getattr(c.stats, name) for c in self.completions))

    @property
    def tokens_per_s(self) -> float:
        return self.total("completion_tokens") / self.total("decode_s")

    @property
    def speeds(self) -> list[float]:
        return [c.stats.completion_tokens / c.stats.decode_s for c in self.completions if c.stats.completion_tokens]

    @property
    def acceptance(self) -> float | None:
        drafted = self.total("accepted") + self.total("recovered")
        return self.total("accepted") / drafted if drafted else None

    @property
    def tokens_per_target_forward(self) -> float:
        """Prefill forwards included, as they are part of what a request costs."""
        return self.total("completion_tokens") / self.total("target_forwards")

    @property
    def accuracy(self) -> FamilyScore:
        return family_score(self.correct, len(self.completions))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def ratio_spread(self) -> tuple[float, float]:
        """Quartiles of the ratios."""
        low, _, high = statistics.quantiles(self.ratios, n=4)
        return low, high


def local_pair(block_size: int, threads: int, target: str, draft: str) -> Loop:
    shared = {"block_size": block_size, "threads": threads}
    return build_local(
        WorkerConfig(role="target", model=target, **shared),
        WorkerConfig(role="draft", model=draft, **shared),
        LoopConfig(max_running=1),
    )


def questions(per_family: int, seed: int = 11) -> list[Question]:
    """Held-out questions, the families taking turns, so that the first n are a fair sample too."""
    columns = [family.questions("heldout", per_family, seed) for family in FAMILIES.values()]
    return [question for row in zip(*columns, strict=True) for question in row]


def measure(
    loop: Loop, asked: Sequence[Question], settings: Sequence[Setting], tick: Callable[[], None] = lambda: None
) -> list[Result]:
    """Every prompt by every setting; the first setting is what `ratios` compare with. `tick` after each prompt."""
    results = [Result(setting) for setting in settings]
    for index, question in enumerate([*asked[:WARM_UP], *asked]):
        prompt = loop.tokenizer.encode_messages([{"role": "user", "content": question.prompt}])
        speeds = []
        for result in results:
            request = Request(f"bench-{index}-{result.setting.name}", prompt, result.setting.params)
            completion = generate_all(loop, [request])[0]
            speeds.append(completion.stats.completion_tokens / completion.stats.decode_s)
            if index >= WARM_UP:
                result.completions.append(completion)
                result.correct += FAMILIES[question.family].check(question, completion.text)
        if index >= WARM_UP and speeds[0]:
            for result, speed in zip(results, speeds, strict=True):
                result.ratios.append(speed / speeds[0])
        tick()
    return results
