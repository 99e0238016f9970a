"""Arguments of the application, the same for `simsd serve`, `serve run` and a Serve config file."""

from typing import Any

from pydantic import Field, model_validator

from deployments.options import with_options
from simsd.config import SHIPPED, LoopConfig, LoopSettings, WorkerConfig, WorkerSettings
from simsd.errors import ConfigError, RequestError
from simsd.messages.options import options_of
from simsd.messages.presets import on_top_of
from simsd.messages.request import DecodeParams, Method
from simsd.messages.worker import Role

NOT_HERE = {
    "role": "a server has a worker of each role",
    "model": "target and draft name the models",
    "draft_share": "a pair of the server has its draft for itself",
    "draft_top_k": "it decides the size of each message between the models, so no request may choose it",
    **dict.fromkeys(
        ("top_p", "top_k", "min_p", "seed", "stop", "min_tokens", "logit_bias", "ignore_eos"),
        "each request says it for itself, as clients of other servers do",
    ),
}
"""Settings of workers, the loop and requests that are not arguments of the server, each with the reason."""
DECODE_DEFAULTS = {name: option for name, option in options_of(DecodeParams).items() if name not in NOT_HERE}


@with_options(DECODE_DEFAULTS.values(), may_be_absent=False)
class ServeArgs(WorkerSettings, LoopSettings):
    """The arguments of `build_app`. Values may be strings, as on a command line; "none" stands for no value.

    Sizes are in tokens, times in seconds. The options of `DecodeParams` are defaults that a request may override.
    """

    target: str = Field(SHIPPED, description="the large model: a directory, a hub name, or 'shipped'")
    draft: str | None = Field(SHIPPED, description="the small model, or 'none' to serve the target alone")
    served_model_name: str | None = Field(None, description="name in the API; else the target's own")

    pairs: int = Field(1, ge=1, description="how many draft and target pairs serve side by side, or at least")
    max_pairs: int = Field(0, ge=0, description="pairs at most, by load (0: always as many as pairs)")
    upscale_delay_s: float = Field(10.0, ge=0, description="how long the load must last before a pair is added")
    downscale_delay_s: float = Field(300.0, ge=0, description="how long it must be gone before one is taken away")
    drain_s: float = Field(600.0, gt=0, description="how long a pair that is taken away may finish its requests")
    draft_gpus: float | None = Field(None, ge=0, description="GPUs of a draft, or a share (none: by the device)")
    target_gpus: float | None = Field(None, ge=0, description="GPUs of a target, or a share (none: by the device)")
    stream_interval: int = Field(1, ge=1, description="tokens in each message of a stream at least, but the first")

    method: Method | None = Field(
        None, description=f"{DECODE_DEFAULTS['method'].help} (none: simsd, or vanilla without a draft)"
    )
    max_tokens: int = Field(512, ge=1, description=DECODE_DEFAULTS["max_tokens"].help)

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
        """Return the server's defaults, overridden by what a request asks for; `RequestError` names a wrong field.

        requested: options of `DecodeParams`, and `preset`. A default that could not do anything beside what the request
        asks for is left out.
        """
        defaults = {name: getattr(self, name) for name in DECODE_DEFAULTS}
        defaults["method"] = self.method or ("simsd" if self.draft else "vanilla")
        return DecodeParams(**(on_top_of(defaults, requested) if requested else defaults))

    def worker_config(self, role: Role) -> WorkerConfig | None:
        """Return the settings of one model's worker; None for the draft of a server without one."""
        model = self.draft if role == "draft" else self.target
        if model is None:
            return None
        shared = {name: getattr(self, name) for name in WorkerSettings.model_fields}
        if role == "draft":
            shared["tensor_parallel"] = 1
        return WorkerConfig(role=role, model=model, **shared)

    def loop_config(self) -> LoopConfig:
        return LoopConfig(**{name: getattr(self, name) for name in LoopSettings.model_fields})

    def gpus(self, role: Role) -> float:
        """Return the GPUs that an engine of this role reserves: as set, else one if the device is a GPU."""
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
        """The model's name in the API."""
        return self.served_model_name or self.target.rstrip("/")
