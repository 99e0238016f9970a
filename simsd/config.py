"""Frozen settings. Unknown keys raise and name the nearest known one."""

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from simsd.errors import ConfigError
from simsd.messages.worker import Role

SHIPPED = "shipped"
"""As a model's name: the tiny checkpoint that comes with the package."""
MAX_BLOCK_SIZE = 64


class Settings(BaseModel):
    """Base of all settings: frozen, typed, strict about names."""

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


class WorkerConfig(Settings):
    """One model replica. `model` is a directory, a hub name, or "shipped".

    `kv_tokens` is the size of the page pool in tokens; `page_size` in tokens, a multiple of the block size (0: the
    block size, at least 16). `threads` are torch's CPU threads (0: leave torch's own choice). `max_rows` bounds one
    forward. `tensor_parallel` processes share the model, each with its part of the heads. `runner`: how forwards are
    launched (simsd/forward/runner.py).
    """

    role: Role
    model: str = SHIPPED
    block_size: int | None = Field(None, ge=1, le=MAX_BLOCK_SIZE)
    mask_token_id: int | None = Field(None, ge=0)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    page_size: int = Field(0, ge=0)
    kv_tokens: int = Field(32768, ge=1)
    max_model_len: int | None = Field(None, ge=1)
    max_rows: int = Field(2048, ge=64)
    prefix_cache: bool = True
    threads: int = Field(0, ge=0)
    tensor_parallel: int = Field(1, ge=1)
    runner: Literal["eager", "graph", "compile"] = "eager"


class LoopConfig(Settings):
    """`prefill_rows` bounds the prompt rows of one round; `draft_share` is our part of the draft's pages.

    `draft_ahead`: while the target verifies a whole block, a draft of its own process drafts the next one.
    `async_scheduling`: the next round waits in the target's engine while the loop takes in the last one.
    """

    max_running: int = Field(16, ge=1)
    max_queued: int = Field(128, ge=0)
    prefill_rows: int = Field(256, ge=64)
    draft_share: float = Field(1.0, gt=0, le=1)
    draft_ahead: bool = True
    async_scheduling: bool = True
