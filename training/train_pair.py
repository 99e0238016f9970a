"""Train the tokenizer, the target and the draft, and write them as checkpoints.

    python -m training.train_pair --out simsd/assets

A run that was killed continues from its last saved state when it is started again with the same arguments.
"""

import argparse
import json
import math
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm import tqdm

from simsd.models.checkpoint import layout_of
from simsd.models.config import ModelConfig
from simsd.models.loading import build_model, save_model
from simsd.models.model import BlockDiffusionModel
from simsd.models.sdar import ARCHITECTURE
from training.data import ROW_LENGTH, ROWS, Batch, ExampleSource, make_batch
from training.muon import Muon
from training.tokenizer import END_OF_TEXT, IM_END, MASK, PAD, VOCAB_SIZE, save_tokenizer, train_tokenizer

BLOCK_SIZE = 4


@dataclass(frozen=True)
class Plan:
    """One model's size and schedule. The learning rates fall to zero in the last part `decay` of the run."""

    name: str
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    intermediate_size: int
    steps: int
    warmup_steps: int = 40
    decay: float = 0.68
    muon_lr: float = 0.02
    adamw_lr: float = 3e-3

    @property
    def config(self) -> ModelConfig:
        return ModelConfig(
            architecture=ARCHITECTURE,
            vocab_size=VOCAB_SIZE,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=32,
            intermediate_size=self.intermediate_size,
            max_position_embeddings=2048,
            rms_norm_eps=1e-6,
            rope_theta=1e4,
            tie_word_embeddings=True,
            block_size=BLOCK_SIZE,
            mask_token_id=MASK,
            eos_token_ids=(IM_END, END_OF_TEXT),
        )

    def rate(self, step: int) -> float:
        """Return the factor on the learning rates: a short warm-up, then constant, then linear to zero."""
        decay_steps = max(1, int(self.steps * self.decay))
        return min(1.0, (step + 1) / self.warmup_steps, (self.steps - step) / decay_steps)


TARGET = Plan("target", 256, 8, 8, 4, 704, steps=4600)
DRAFT = Plan("draft", 160, 2, 5, 5, 448, steps=7000)


class Objective(nn.Module):
    """The model's forward over packed rows. All shapes are fixed, which suits torch.compile."""

    def __init__(self, model: BlockDiffusionModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor, position_ids: Tensor, attn_mask: Tensor) -> Tensor:
        """Return hidden states [R * L, hidden] of token_ids, position_ids [R, L], attn_mask [R, 1, L, L] bool."""
        rows, length = token_ids.shape

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            groups = q.shape[1] // k.shape[1]
            k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
            q, k, v = (x.view(rows, length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
            seen = F.scaled_dot_product_attention(q, k, v.to(q.dtype), attn_mask=attn_mask)
            return seen.transpose(1, 2).reshape(rows * length, -1)

        hidden: Tensor = self.model(token_ids.flatten(), position_ids.flatten(), attend)
        return hidden


def loss_of(model: BlockDiffusionModel, objective: nn.Module, batch: Batch) -> Tensor:
    """Return the weighted cross-entropy at the masked positions."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = objective(batch.token_ids, batch.position_ids, batch.attn_mask)
        logits = model.logits(hidden[batch.masked])
    return (F.cross_entropy(logits, batch.labels, reduction="none") * batch.weights).sum()


def make_optimizers(model: BlockDiffusionModel, plan: Plan) -> list[torch.optim.Optimizer]:
    """Return Muon for the layers' matrices (q, k, v, gate and up separately), and AdamW for embedding and norms."""
    rows: dict[str, list[int]] = {}
    for piece in layout_of(model.config).pieces:
        rows.setdefault(piece.parameter, []).append(piece.shape[0])
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and ".layers." in name:
            matrices.append((parameter, tuple(rows[name])))
        else:
            rest.append(parameter)
    return [
        Muon(matrices, lr=plan.muon_lr),
        torch.optim.AdamW(rest, lr=plan.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0, foreach=True),
    ]


def initialise(model: BlockDiffusionModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            scale = 0.02 if parameter.shape[0] == VOCAB_SIZE else 0.6 / math.sqrt(parameter.shape[1])
            nn.init.normal_(parameter, std=scale, generator=generator)


def save_state(path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], **more: Any) -> None:
    """Save the state through a temporary file, so that a run killed meanwhile keeps its last state."""
    temporary = path.with_suffix(".tmp")
    state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], **more}
    torch.save(state, temporary)
    temporary.replace(path)


def train(
    plan: Plan, source: ExampleSource, seed: int, state_path: Path, save_every: int, compiled: bool
) -> tuple[BlockDiffusionModel, float]:
    """Train, and return the model and the seconds that it took, with those before the run was resumed."""
    model = build_model(plan.config)
    initialise(model, seed)
    optimizers = make_optimizers(model, plan)
    start, seconds = 0, 0.0
    if state_path.is_file():
        state = torch.load(state_path, weights_only=True)
        if state["steps"] != plan.steps or state["seed"] != seed:
            raise SystemExit(f"{state_path} is of a run with other arguments; delete it or give them again")
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        start, seconds = state["step"], state["seconds"]
    objective: nn.Module = torch.compile(Objective(model)) if compiled else Objective(model)
    groups = [(group, group.get("base_lr", group["lr"])) for o in optimizers for group in o.param_groups]
    clock = time.perf_counter()
    average = math.nan
    for step in (bar := tqdm(range(start, plan.steps), initial=start, total=plan.steps, desc=plan.name, mininterval=5)):
        for group, rate in groups:
            group["base_lr"], group["lr"] = rate, rate * plan.rate(step)
        loss = loss_of(model, objective, make_batch(source, seed, step))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if not math.isfinite(value):
            raise SystemExit(f"{plan.name}: the loss is {value} at step {step}")
        average = value if math.isnan(average) else 0.98 * average + 0.02 * value
        bar.set_postfix(loss=f"{average:.4f}", refresh=False)
        if (step + 1) % save_every == 0 or step + 1 == plan.steps:
            total = seconds + time.perf_counter() - clock
            save_state(state_path, model, optimizers, step=step + 1, steps=plan.steps, seed=seed, seconds=total)
    return model, seconds + time.perf_counter() - clock


def write_checkpoint(model: BlockDiffusionModel, tokenizer: Tokenizer, directory: Path) -> None:
    """Write a directory that transformers and simsd read: config, bfloat16 weights, tokenizer and chat template."""
    directory.mkdir(parents=True, exist_ok=True)
    config = model.config
    raw = {
        "architectures": [config.architecture],
        "model_type": "sdar",
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": IM_END,
        "pad_token_id": PAD,
        "mask_token_id": MASK,
        "block_size": config.block_size,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "initializer_range": 0.02,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
    }
    generation = {"bos_token_id": END_OF_TEXT, "eos_token_id": [IM_END, END_OF_TEXT], "pad_token_id": PAD}
    (directory / "config.json").write_text(json.dumps(raw, indent=2) + "\n")
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    weights = directory / "model.safetensors"
    save_model(model, weights)
    weights.chmod(0o644)  # safetensors writes files that only their owner can read
    save_tokenizer(tokenizer, directory)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.train_pair", description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where target/ and draft/ are written")
    parser.add_argument(
        "--state", type=Path, default=Path("runs/train-pair"), help="where states are kept to resume from"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of data, weights and tokenizer")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--save-every", type=int, default=100, help="steps between two saved states")
    parser.add_argument("--target-steps", type=int, default=TARGET.steps, help="training steps of the target")
    parser.add_argument("--draft-steps", type=int, default=DRAFT.steps, help="training steps of the draft")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, which needs a C++ compiler")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    torch.set_num_threads(args.threads)
    # Autocast leaves the weights of norms in float32 on purpose; torch warns of this because it is slower.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    args.state.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(args.seed)
    source = ExampleSource(tokenizer)
    plans = (replace(TARGET, steps=args.target_steps), replace(DRAFT, steps=args.draft_steps))
    for plan in plans:
        state_path = args.state / f"{plan.name}.pt"
        model, seconds = train(plan, source, args.seed, state_path, args.save_every, not args.no_compile)
        write_checkpoint(model, tokenizer, args.out / plan.name)
        weights, tokens = model.config.parameters / 1e6, plan.steps * ROWS * ROW_LENGTH / 1e6
        print(f"{plan.name}: {weights:.2f}M weights, {tokens:.1f}M tokens, {seconds / 60:.1f} min")


if __name__ == "__main__":
    main()
