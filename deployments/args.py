"""Arguments of the application, the same for `simsd serve`, `serve run` and a Serve config file."""

from typing import Any, Literal

from pydantic import Field, model_validator

from simsd.config import SHIPPED, LoopConfig, Settings, WorkerConfig
from simsd.errors import ConfigError, RequestError
from simsd.messages.request import DecodeParams, Drafter, Fallback, Layout, Method, Remasking, Routing, RoutingScore


class ServeArgs(Settings):
    """What `build_app` takes. Values may be strings, as a command line gives them; "none" stands for no value.

    Sizes are in tokens, times in seconds. The decoding settings, max_tokens and temperature are defaults that a request
    may override.
    """

    target: str = Field(SHIPPED, description="the large model: a directory, a hub name, or 'shipped'")
    draft: str | None = Field(SHIPPED, description="the small model, or 'none' to serve the target alone")
    served_model_name: str | None = Field(None, description="name in the API; else the target's own")

    block_size: int | None = Field(None, ge=1, le=64, description="block size; else the checkpoint's")
    mask_token_id: int | None = Field(None, ge=0, description="mask token; else the checkpoint's")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="type of the weights")
    device: str = Field("auto", description="auto, cpu or cuda")
    page_size: int = Field(0, ge=0, description="tokens of a KV page (0: chosen)")
    kv_tokens: int = Field(32768, ge=1, description="tokens of each model's KV pool")
    max_model_len: int | None = Field(None, ge=1, description="longest prompt and answer; else the checkpoint's")
    max_rows: int = Field(2048, ge=64, description="most rows of one forward")
    prefix_cache: bool = Field(True, description="keep the KV of finished prompts for the next ones")
    threads: int = Field(0, ge=0, description="CPU threads of each model's process (0: an equal share of the cores)")
    runner: Literal["eager", "graph", "compile"] = Field(
        "eager", description="launch of a forward: eager, graph (static shapes), compile (starts a minute later)"
    )
    tensor_parallel: int = Field(1, ge=1, description="processes, each with a GPU of its own, that share the target")

    pairs: int = Field(1, ge=1, description="how many draft and target pairs serve side by side, or at least")
    max_pairs: int = Field(0, ge=0, description="pairs at most, by load (0: always as many as pairs)")
    upscale_delay_s: float = Field(10.0, ge=0, description="how long the load must last before a pair is added")
    downscale_delay_s: float = Field(300.0, ge=0, description="how long it must be gone before one is taken away")
    drain_s: float = Field(600.0, gt=0, description="how long a pair that is taken away may finish its requests")
    draft_gpus: float | None = Field(None, ge=0, description="GPUs of a draft, or a share (none: by the device)")
    target_gpus: float | None = Field(None, ge=0, description="GPUs of a target, or a share (none: by the device)")
    max_running: int = Field(16, ge=1, description="requests that decode at the same time, for each pair")
    max_queued: int = Field(128, ge=0, description="requests that may wait, for each pair; more get status 429")
    prefill_rows: int = Field(256, ge=64, description="most prompt tokens of one round")
    draft_ahead: bool = Field(True, description="draft the next block while the target verifies one")
    stream_interval: int = Field(1, ge=1, description="tokens in each message of a stream at least, but the first")
    async_scheduling: bool = Field(True, description="the target begins a round before the loop has seen the last one")

    method: Method | None = Field(
        None, description="simsd, exact, s2d2 or vanilla (none: simsd, vanilla without a draft)"
    )
    gamma: int = Field(0, ge=0, description="tokens drafted a round (0: a block)")
    draft_steps: int = Field(0, ge=0, description="draft forwards for them (0: gamma)")
    layout: Layout = Field("paired", description="rows of a simsd verification: paired or branches")
    fallback: Fallback = Field("redraft", description="simsd with less than gamma left: redraft or target")
    remasking: Remasking = Field("static", description="order of reveals: static, dynamic, sequential or entropy")
    steps: int = Field(0, ge=0, description="denoising steps of a block (0: one for each position)")
    threshold: float = Field(0.9, description="probability above which dynamic remasking reveals")
    entropy_bound: float = Field(0.35, description="entropy in nats below which entropy remasking reveals")
    row_budget: int = Field(0, ge=0, description="most rows of one exact verification (0: 8 blocks)")
    drafter: Drafter = Field("model", description="who drafts: the draft, or self: the target in its last forward")
    routing: Routing = Field("span", description="when s2d2 verifies: span, score, hysteresis or ucb")
    routing_score: RoutingScore = Field("margin", description="s2d2's guess of acceptance: margin or entropy")
    routing_cost: float = Field(1.0, description="tokens that an s2d2 verification must be expected to bring")
    adaptive: bool = Field(False, description="gamma, draft_steps and row_budget as limits: what is fastest is taken")
    max_tokens: int = Field(512, ge=1, description="length of an answer when the request does not say")
    temperature: float = Field(0.0, description="temperature when the request does not say (0: greedy)")

    lease_timeout_s: float = Field(900.0, gt=0, description="how long a coordinator waits for a model's process")
    forward_timeout_s: float = Field(300.0, gt=0, description="an engine that is busy for longer is replaced")
    request_timeout_s: float = Field(0.0, ge=0, description="longest time for an answer; then status 504 (0: any)")
    max_requests_per_key: int = Field(0, ge=0, description="requests of one API key at a time; then 429 (0: any)")
    max_body_bytes: int = Field(4 * 2**20, ge=1024, description="largest request body; more gets status 413")

    @model_validator(mode="before")
    @classmethod
    def _none_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        words = ("none", "null", "")
        return {k: None if isinstance(v, str) and v.lower() in words else v for k, v in data.items()}

    @model_validator(mode="after")
    def _checked(self) -> "ServeArgs":
        if self.max_pairs and self.max_pairs < self.pairs:
            raise ConfigError(f"max_pairs must be 0 or at least pairs ({self.pairs}); got {self.max_pairs}")
        try:
            self.decode_params()
        except RequestError as error:
            raise ConfigError(str(error)) from error
        if self.draft is None and self.decode_params().needs_draft:
            raise ConfigError(
                f"method {self.method!r} needs a draft; name one, or use drafter self, or method vanilla or s2d2"
            )
        return self

    def decode_params(self, **requested: Any) -> DecodeParams:
        """The server's defaults with what a request asks for on top; `RequestError` names the field at fault."""
        defaults = {name: getattr(self, name) for name in DECODE_DEFAULTS}
        defaults["method"] = self.method or ("simsd" if self.draft else "vanilla")
        return DecodeParams(**(defaults | requested))

    def worker_config(self, role: Literal["draft", "target"]) -> WorkerConfig | None:
        """Settings of one model's worker; None for the draft of a server without one."""
        model = self.draft if role == "draft" else self.target
        if model is None:
            return None
        shared = {name: getattr(self, name) for name in WorkerConfig.model_fields if name in ServeArgs.model_fields}
        if role == "draft":
            shared["tensor_parallel"] = 1
        return WorkerConfig(role=role, model=model, **shared)

    def loop_config(self) -> LoopConfig:
        return LoopConfig(
            **{name: getattr(self, name) for name in LoopConfig.model_fields if name in ServeArgs.model_fields}
        )

    def gpus(self, role: Literal["draft", "target"]) -> float:
        """GPUs that an engine of this role reserves: as told, else one if the device is a GPU."""
        told = self.draft_gpus if role == "draft" else self.target_gpus
        return told if told is not None else float(self.device.startswith("cuda"))

    @property
    def most_pairs(self) -> int:
        """Pairs at the highest load."""
        return max(self.pairs, self.max_pairs)

    @property
    def engines(self) -> int:
        """Engine processes of the whole application, at the highest load."""
        return self.most_pairs * (self.tensor_parallel + bool(self.draft))

    @property
    def model_name(self) -> str:
        """What the API calls the model."""
        return self.served_model_name or self.target.rstrip("/")


DECODE_DEFAULTS = tuple(name for name in DecodeParams.__dataclass_fields__ if name in ServeArgs.model_fields)
