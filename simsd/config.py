"""Frozen settings of workers and loops. An unknown key raises a `ConfigError` that names the nearest known one."""

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from simsd.errors import ConfigError
from simsd.messages.worker import Role

SHIPPED = "shipped"
"""The model name that stands for the tiny checkpoints that come with the package."""
MAX_BLOCK_SIZE = 64


class Settings(BaseModel):
    """The base of all settings, which are frozen, typed, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                near = difflib.get_close_matches(key, cls.model_fields, n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(cls.model_fields)}"
                raise ConfigError(f"{cls.__name__}: unknown setting {key!r}; {hint}")
        return data


class WorkerSettings(Settings):
    """How a model is run. These settings hold for the draft and the target alike."""

    block_size: int | None = Field(None, ge=1, le=64, description="block size (none: the checkpoint's)")
    mask_token_id: int | None = Field(None, ge=0, description="mask token (none: the checkpoint's)")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="type of the weights; auto is bfloat16 on a GPU, else float32"
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto is cuda if there is one")
    page_size: int = Field(
        0, ge=0, description="tokens of a KV page, a multiple of the block size (0: the block size, at least 16)"
    )
    kv_tokens: int = Field(32768, ge=1, description="tokens of each model's KV pool")
    max_model_len: int | None = Field(None, ge=1, description="longest prompt and answer (none: the checkpoint's)")
    max_rows: int = Field(2048, ge=64, description="most rows of one forward")
    prefix_cache: bool = Field(True, description="keep the KV of finished prompts for the next ones")
    threads: int = Field(
        0, ge=0, description="CPU threads of each model (0: torch's choice; on Ray an equal share of the cores)"
    )
    tensor_parallel: int = Field(
        1, ge=1, description="processes, each with its part of the heads and a GPU of its own, that share the target"
    )
    runner: Literal["eager", "graph", "compile"] = Field(
        "eager",
        description="launch of forwards: one by one, with static shapes (CUDA graphs on a GPU), or by torch.compile, "
        "which takes a minute before the first answer",
    )


class WorkerConfig(WorkerSettings):
    """The settings of one worker: which model it runs, in which role, and how."""

    role: Role
    model: str = Field(SHIPPED, description="a directory, a hub name, or 'shipped'")


class LoopSettings(Settings):
    """How requests share a pair of models."""

    max_running: int = Field(16, ge=1, description="requests that decode at the same time, for each pair")
    max_queued: int = Field(128, ge=0, description="requests that may wait, for each pair; more are refused (429)")
    prefill_rows: int = Field(256, ge=64, description="most prompt tokens of one round")
    draft_ahead: bool = Field(True, description="draft the next block while the target verifies one")
    async_scheduling: bool = Field(True, description="the target begins a round before the loop has seen the last one")


class LoopConfig(LoopSettings):
    """The settings of one loop."""

    draft_share: float = Field(1.0, gt=0, le=1, description="part of the draft's pages that belongs to this loop")
