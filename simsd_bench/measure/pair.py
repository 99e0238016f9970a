"""The pair under measurement: checkpoints, or models of real shapes with random weights.

Random weights tell nothing about answers, only about the speed of the system. `SyntheticDraft` then runs the draft's
forwards, but proposes the target's greedy path, corrupted so that a given fraction of its tokens is accepted. Asking
the target for that path is not part of any measured time.
"""

import dataclasses
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import get_args

import torch

from simsd.config import SHIPPED, LoopConfig, WorkerConfig
from simsd.errors import ConfigError
from simsd.in_process import LocalClient
from simsd.loop.loop import Loop
from simsd.messages.round import Proposal, Proposals, Work
from simsd.messages.worker import Role
from simsd.models.checkpoint import load_model_config
from simsd.models.files import ASSETS, resolve_model
from simsd.models.loading import empty_model, load_model
from simsd.models.model import BlockDiffusionModel
from simsd.planning.shapes import SHAPES, write_config
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.draft_process import DraftProcess
from simsd.worker.worker import Load, Worker

INITIAL_STD = 0.02


@dataclass(frozen=True)
class PairSpec:
    """The pair and how it runs. `random_weights` names two SHAPES, draft and target, in place of checkpoints.

    `runner` is the way in which forwards are launched (simsd/forward/runner.py).
    """

    target: str = SHIPPED
    draft: str = SHIPPED
    threads: int = 1
    device: str = "auto"
    dtype: str = "auto"
    random_weights: tuple[str, str] | None = None
    acceptance: float | None = None
    runner: str = "eager"
    overlap: bool = False

    def __post_init__(self) -> None:
        if self.overlap and self.synthetic:
            raise ConfigError("overlap is for trained pairs; it goes with neither random_weights nor acceptance")
        unknown = [name for name in self.random_weights or () if name not in SHAPES]
        if unknown:
            raise ConfigError(f"random_weights: no shape {unknown[0]!r}; known: {', '.join(SHAPES)}")
        if self.acceptance is not None and not 0 <= self.acceptance <= 1:
            raise ConfigError(f"synthetic_acceptance must be between 0 and 1; got {self.acceptance}")

    @property
    def synthetic(self) -> bool:
        """Whether answers and acceptance are artificial."""
        return self.random_weights is not None or self.acceptance is not None

    def describe(self) -> str:
        """Return the description of the pair that every output shows."""
        if self.random_weights:
            draft, target = self.random_weights
            text = f"**random weights** in the shapes of {target} (target) and {draft} (draft), no checkpoint"
        else:
            text = f"target `{self.target}`, draft `{self.draft}`"
        if self.runner != "eager":
            text += f", runner {self.runner}"
        if self.overlap:
            text += ", the draft in a process of its own, which drafts ahead"
        if self.acceptance is not None:
            text += (
                f"; **synthetic acceptance {self.acceptance}**: the draft's forwards run, and propose the target's own "
                "greedy path, corrupted so that this fraction of tokens stands; asking the target for it is not timed"
            )
        return text

    def settings(self, role: Role, block_size: int) -> WorkerConfig:
        """Return the settings of one model's worker."""
        return WorkerConfig(
            role=role,
            model=self.target if role == "target" else self.draft,
            block_size=block_size,
            threads=self.threads,
            device=self.device,
            dtype=self.dtype,
            prefix_cache=False,
            runner=self.runner,
        )

    def loop(self, block_size: int, batch: int = 1, aligned: bool = True) -> Loop:
        """Load both models and return a loop of `batch` sequences over them; `aligned` is the argument of `Worker`.

        There is no prefix cache, so that no setting profits from the prompts of another.
        """
        with tempfile.TemporaryDirectory() as directory:
            settings = {role: self.settings(role, block_size) for role in get_args(Role)}
            load: Load = load_model
            if self.random_weights:
                for role, shape in zip(("draft", "target"), self.random_weights, strict=True):
                    model = str(_write_shape(Path(directory) / role, shape))
                    settings[role] = settings[role].model_copy(update={"model": model})
                load = _random_model
            target = Worker(settings["target"], aligned, load)
            tokenizer = Tokenizer.load(resolve_model(settings["target"].model, "target"), target.info.mask_token_id)
            loop_config = LoopConfig(max_running=batch)
            if self.overlap:
                return Loop(LocalClient(target), DraftProcess(settings["draft"]), tokenizer, loop_config)
            draft = Worker(settings["draft"], aligned, load)
            draft_client = LocalClient(draft)
            if self.acceptance is not None:
                oracle = Worker(settings["target"], load=lambda *_: target.model)
                draft_client = SyntheticDraft(draft, oracle, self.acceptance)
            return Loop(LocalClient(target), draft_client, tokenizer, loop_config)


def _write_shape(directory: Path, shape: str) -> Path:
    """Write a checkpoint's directory without weights, with the shipped tokenizer, and return it."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
        write_config(directory, shape)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(ASSETS / "target" / name, directory)
    return directory


@torch.inference_mode()
def _random_model(path: Path, name: str, dtype: torch.dtype, device: str) -> BlockDiffusionModel:
    """Return a model with normally distributed weights, made on its device, since 16 GB made on a CPU take minutes."""
    model = empty_model(load_model_config(path, name), dtype, device)
    generator = torch.Generator(device).manual_seed(model.config.num_hidden_layers)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, INITIAL_STD, generator=generator)
    model.make_tables()
    return model


class SyntheticDraft(LocalClient):
    """A draft with real forwards whose tokens are the target's own, some of them replaced; for greedy decoding only.

    Its confidence halves from step to step, so that `exact` expects the target's order. `oracle` has the target's
    weights and pages of its own; `untimed_s` counts the seconds that it has taken.
    """

    def __init__(self, worker: Worker, oracle: Worker, acceptance: float) -> None:
        super().__init__(worker)
        self.oracle, self.acceptance = oracle, acceptance
        self.untimed_s = 0.0

    def propose(self, batch: list[Work]) -> Proposals:
        if any(work.params.temperature > 0 for work in batch):
            raise ConfigError("synthetic_acceptance is for greedy decoding; set temperature to 0")
        proposals = self.worker.propose(batch)
        began = time.perf_counter()
        path = self.oracle.propose([_one_by_one(work) for work in batch])
        assert path.cached == proposals.cached, "draft and oracle do the same work, so they hold the same tokens"
        works = {work.seq_id: work for work in batch}
        proposals.items = {seq_id: self._spoil(item, works[seq_id]) for seq_id, item in path.items.items()}
        if proposals.items:
            self.untimed_s += time.perf_counter() - began
        return proposals

    def release(self, seq_ids: list[str]) -> None:
        super().release(seq_ids)
        self.oracle.release(seq_ids)

    def _spoil(self, proposal: Proposal, work: Work) -> Proposal:
        assert work.block is not None
        chance = Random(f"{work.prompt_tokens} {work.block.start} {list(work.block.tokens)}")
        avoid = {self.info.mask_token_id, *self.info.eos_token_ids}
        [drafted] = proposal.blocks
        tokens = []
        for token in drafted.tokens:
            others = (other % self.info.vocab_size for other in range(token + 1, token + len(avoid) + 2))
            tokens.append(token if chance.random() < self.acceptance else next(o for o in others if o not in avoid))
        confidence = [self.acceptance / 2**rank for rank in range(len(tokens))]
        return Proposal([dataclasses.replace(drafted, tokens=tokens, confidence=confidence)])


def _one_by_one(work: Work) -> Work:
    """Return the work with one token a step, which makes the target draft its own greedy path."""
    return dataclasses.replace(work, params=dataclasses.replace(work.params, draft_steps=max(1, work.gamma)))
