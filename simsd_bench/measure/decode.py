"""Measures decoding in this process: several settings over the same prompts.

The speed is tokens over decode time, without prefill and without the warm-up prompts (the paper, section 4). Each
prompt is decoded by all settings before the next one, so that a machine that slows down slows all settings alike.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simsd.eval.datasets import Item
from simsd.eval.score import FamilyScore, family_score
from simsd.in_process import Completion, generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec, SyntheticDraft

Tick = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of a table: its name, how to decode, and on which loop. `facts` are further columns."""

    name: str
    params: DecodeParams
    loop: Loop
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """Prompts decoded together (one at batch 1), their answers, and whether each part of them is right.

    decode_s: the longest decode time among them, in seconds. rows: rows of all target forwards but those of prompts.
    """

    sources: list[str]
    completions: list[Completion]
    right: list[list[bool]]
    decode_s: float
    rows: int

    @property
    def speed(self) -> float | None:
        """Tokens/s; None for empty answers, whose time is no measure."""
        tokens = sum(c.stats.completion_tokens for c in self.completions)
        return tokens / self.decode_s if tokens else None


@dataclass(slots=True)
class Result:
    """The samples of a setting, one for each batch of prompts, and those of the first setting on the same prompts."""

    setting: Setting
    samples: list[Sample] = field(default_factory=list)
    baseline: list[Sample] = field(default_factory=list)

    def total(self, name: str) -> float:
        return float(sum(getattr(c.stats, name) for sample in self.samples for c in sample.completions))

    @property
    def tokens_per_s(self) -> float:
        return self.total("completion_tokens") / sum(sample.decode_s for sample in self.samples)

    @property
    def ratio(self) -> float:
        """Median tokens/s over the baseline's median."""
        speeds, others = zip(*self._pairs(), strict=True)
        return statistics.median(speeds) / statistics.median(others)

    @property
    def ratio_spread(self) -> tuple[float, float]:
        """Quartiles of the ratios on the same prompts."""
        ratios = [speed / other for speed, other in self._pairs()]
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, high

    @property
    def acceptance(self) -> float | None:
        """The share of accepted tokens among the drafted tokens that were tested."""
        judged = self.total("accepted") + self.total("recovered")
        return self.total("accepted") / judged if judged else None

    @property
    def tokens_per_verify(self) -> float | None:
        """The mean number of tokens that a verification of a draft reveals."""
        rounds = sum(sum(c.stats.accept_histogram.values()) for s in self.samples for c in s.completions)
        revealed = self.total("accepted") + self.total("recovered") + self.total("bonus")
        return revealed / rounds if rounds else None

    @property
    def accuracy(self) -> FamilyScore | None:
        known = [right for sample in self.samples for parts in sample.right for right in parts]
        return family_score(sum(known), len(known)) if known else None

    def of(self, source: str) -> "Result":
        """Return the part of one family or file. A batch belongs to the source of its first prompt."""
        kept = [i for i, sample in enumerate(self.samples) if sample.sources[0] == source]
        return Result(self.setting, [self.samples[i] for i in kept], [self.baseline[i] for i in kept])

    def row(self, block_size: int) -> dict[str, Any]:
        """Return all columns that a table may show, as plain numbers."""
        low, high = self.ratio_spread
        tokens, accuracy = self.total("completion_tokens"), self.accuracy
        forwards = self.total("target_forwards")
        rows = sum(sample.rows for sample in self.samples)
        return {
            "block_size": block_size,
            "method": self.setting.name,
            **self.setting.facts,
            "prompts": sum(len(sample.completions) for sample in self.samples),
            "tokens": tokens,
            "tokens_per_s": self.tokens_per_s,
            "ratio": self.ratio,
            "ratio_low": low,
            "ratio_high": high,
            "acceptance": self.acceptance,
            "tokens_per_verify": self.tokens_per_verify,
            "tokens_per_target_forward": tokens / forwards,
            "target_forwards_per_token": forwards / tokens,
            "draft_forwards_per_token": self.total("draft_forwards") / tokens,
            "rows_per_target_forward": rows / forwards,
            "block_ms": 1000 * block_size / self.tokens_per_s,
            "accuracy": accuracy.accuracy if accuracy else None,
            "accuracy_low": accuracy.low if accuracy else None,
            "accuracy_high": accuracy.high if accuracy else None,
        }

    def _pairs(self) -> list[tuple[float, float]]:
        pairs = zip(self.samples, self.baseline, strict=True)
        return [(a.speed, b.speed) for a, b in pairs if a.speed is not None and b.speed is not None]


def measure(
    asked: Sequence[Item], settings: Sequence[Setting], batch: int = 1, warm_up: int = 3, tick: Tick = lambda: None
) -> list[Result]:
    """Decode every prompt by every setting, `batch` prompts together; ratios are over the first setting.

    The settings take turns at being the first to decode a prompt. `tick` is called after each batch.
    """
    results = [Result(setting) for setting in settings]
    groups = [list(asked[first : first + batch]) for first in range(0, len(asked), batch)]
    for index, group in enumerate([*groups[:warm_up], *groups]):
        first = index % len(settings)
        samples = {i: _sample(settings[i], group) for i in [*range(first, len(settings)), *range(first)]}
        for i, result in enumerate(results if index >= warm_up else ()):
            result.samples.append(samples[i])
            result.baseline.append(samples[0])
        tick()
    return results


def _sample(setting: Setting, group: list[Item]) -> Sample:
    loop, params = setting.loop, setting.params
    prompts = [loop.tokenizer.encode_messages(item.messages, tools=item.tools) for item in group]
    requests = [Request(item.key, ids, params) for item, ids in zip(group, prompts, strict=True)]
    rows, untimed = loop.metrics.target.rows, untimed_s(loop)
    completions = generate_all(loop, requests)
    untimed = untimed_s(loop) - untimed
    prefilled = sum(c.stats.prompt_tokens - c.stats.cached_tokens for c in completions)
    return Sample(
        sources=[item.source for item in group],
        completions=completions,
        right=[item.grade(c.text) if item.grade else [] for item, c in zip(group, completions, strict=True)],
        decode_s=max(c.stats.decode_s for c in completions) - untimed,
        rows=loop.metrics.target.rows - rows - prefilled,
    )


def untimed_s(loop: Loop) -> float:
    """Return the seconds that a synthetic draft has spent on asking the target, which are not part of decode time."""
    return loop.draft.untimed_s if isinstance(loop.draft, SyntheticDraft) else 0.0


def run(
    spec: PairSpec,
    asked: Sequence[Item],
    block_sizes: Sequence[int],
    names: Sequence[str],
    protocol: Protocol,
    batches: Sequence[int],
    note: Callable[[str], Tick],
) -> dict[str, Any]:
    """Measure methods for each block size and batch; returns the rows over all prompts, and those by source."""
    rows, by_source = [], []
    for block_size in block_sizes:
        for batch in batches:
            loop = spec.loop(block_size, batch)
            params = methods(block_size, protocol)
            settings = [Setting(name, params[name], loop, {"batch": batch}) for name in names]
            tick = note(f"B={block_size}, batch {batch}: {len(names)} methods over {len(asked)} prompts")
            results = measure(asked, settings, batch, protocol.warm_up, tick)
            rows += [result.row(block_size) for result in results]
            for source in dict.fromkeys(item.source for item in asked) if batch == 1 else ():
                by_source += [result.of(source).row(block_size) | {"source": source} for result in results]
    return {"kind": "decode", "protocol": protocol.describe(), "rows": rows, "by_source": by_source}
