from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SYSTEM: _ClassVar[Role]
    ROLE_DEVELOPER: _ClassVar[Role]
    ROLE_USER: _ClassVar[Role]
    ROLE_ASSISTANT: _ClassVar[Role]

class Preset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRESET_UNSPECIFIED: _ClassVar[Preset]
    PRESET_PAPER: _ClassVar[Preset]
    PRESET_FAST: _ClassVar[Preset]
    PRESET_LOSSLESS: _ClassVar[Preset]
    PRESET_BASELINE: _ClassVar[Preset]

class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    METHOD_UNSPECIFIED: _ClassVar[Method]
    METHOD_VANILLA: _ClassVar[Method]
    METHOD_SIMSD: _ClassVar[Method]
    METHOD_EXACT: _ClassVar[Method]
    METHOD_S2D2: _ClassVar[Method]

class Layout(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAYOUT_UNSPECIFIED: _ClassVar[Layout]
    LAYOUT_PAIRED: _ClassVar[Layout]
    LAYOUT_BRANCHES: _ClassVar[Layout]

class Fallback(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FALLBACK_UNSPECIFIED: _ClassVar[Fallback]
    FALLBACK_TARGET: _ClassVar[Fallback]
    FALLBACK_REDRAFT: _ClassVar[Fallback]

class Drafter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAFTER_UNSPECIFIED: _ClassVar[Drafter]
    DRAFTER_MODEL: _ClassVar[Drafter]
    DRAFTER_SELF: _ClassVar[Drafter]

class Routing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTING_UNSPECIFIED: _ClassVar[Routing]
    ROUTING_SPAN: _ClassVar[Routing]
    ROUTING_SCORE: _ClassVar[Routing]
    ROUTING_HYSTERESIS: _ClassVar[Routing]
    ROUTING_UCB: _ClassVar[Routing]

class RoutingScore(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTING_SCORE_UNSPECIFIED: _ClassVar[RoutingScore]
    ROUTING_SCORE_MARGIN: _ClassVar[RoutingScore]
    ROUTING_SCORE_ENTROPY: _ClassVar[RoutingScore]

class Remasking(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REMASKING_UNSPECIFIED: _ClassVar[Remasking]
    REMASKING_STATIC: _ClassVar[Remasking]
    REMASKING_DYNAMIC: _ClassVar[Remasking]
    REMASKING_SEQUENTIAL: _ClassVar[Remasking]
    REMASKING_ENTROPY: _ClassVar[Remasking]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]

class RevealKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REVEAL_KIND_UNSPECIFIED: _ClassVar[RevealKind]
    REVEAL_KIND_ACCEPTED: _ClassVar[RevealKind]
    REVEAL_KIND_RECOVERED: _ClassVar[RevealKind]
    REVEAL_KIND_BONUS: _ClassVar[RevealKind]
    REVEAL_KIND_DENOISED: _ClassVar[RevealKind]
ROLE_UNSPECIFIED: Role
ROLE_SYSTEM: Role
ROLE_DEVELOPER: Role
ROLE_USER: Role
ROLE_ASSISTANT: Role
PRESET_UNSPECIFIED: Preset
PRESET_PAPER: Preset
PRESET_FAST: Preset
PRESET_LOSSLESS: Preset
PRESET_BASELINE: Preset
METHOD_UNSPECIFIED: Method
METHOD_VANILLA: Method
METHOD_SIMSD: Method
METHOD_EXACT: Method
METHOD_S2D2: Method
LAYOUT_UNSPECIFIED: Layout
LAYOUT_PAIRED: Layout
LAYOUT_BRANCHES: Layout
FALLBACK_UNSPECIFIED: Fallback
FALLBACK_TARGET: Fallback
FALLBACK_REDRAFT: Fallback
DRAFTER_UNSPECIFIED: Drafter
DRAFTER_MODEL: Drafter
DRAFTER_SELF: Drafter
ROUTING_UNSPECIFIED: Routing
ROUTING_SPAN: Routing
ROUTING_SCORE: Routing
ROUTING_HYSTERESIS: Routing
ROUTING_UCB: Routing
ROUTING_SCORE_UNSPECIFIED: RoutingScore
ROUTING_SCORE_MARGIN: RoutingScore
ROUTING_SCORE_ENTROPY: RoutingScore
REMASKING_UNSPECIFIED: Remasking
REMASKING_STATIC: Remasking
REMASKING_DYNAMIC: Remasking
REMASKING_SEQUENTIAL: Remasking
REMASKING_ENTROPY: Remasking
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
REVEAL_KIND_UNSPECIFIED: RevealKind
REVEAL_KIND_ACCEPTED: RevealKind
REVEAL_KIND_RECOVERED: RevealKind
REVEAL_KIND_BONUS: RevealKind
REVEAL_KIND_DENOISED: RevealKind

class GenerateRequest(_message.Message):
    __slots__ = ("model", "prompt", "prompt_token_ids", "messages", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos", "logit_bias", "logprobs", "chat_template_kwargs", "simsd")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_KWARGS_FIELD_NUMBER: _ClassVar[int]
    SIMSD_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    logit_bias: _containers.ScalarMap[int, float]
    logprobs: int
    chat_template_kwargs: _struct_pb2.Struct
    simsd: SimSDOptions
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., logprobs: _Optional[int] = ..., chat_template_kwargs: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., simsd: _Optional[_Union[SimSDOptions, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: Role
    content: str
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., content: _Optional[str] = ...) -> None: ...

class SimSDOptions(_message.Message):
    __slots__ = ("method", "gamma", "draft_steps", "layout", "fallback", "remasking", "steps", "threshold", "entropy_bound", "row_budget", "drafter", "routing", "routing_score", "routing_cost", "adaptive", "lookahead", "preset")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_STEPS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    REMASKING_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    ENTROPY_BOUND_FIELD_NUMBER: _ClassVar[int]
    ROW_BUDGET_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    ROUTING_SCORE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_COST_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    method: Method
    gamma: int
    draft_steps: int
    layout: Layout
    fallback: Fallback
    remasking: Remasking
    steps: int
    threshold: float
    entropy_bound: float
    row_budget: int
    drafter: Drafter
    routing: Routing
    routing_score: RoutingScore
    routing_cost: float
    adaptive: bool
    lookahead: int
    preset: Preset
    def __init__(self, method: _Optional[_Union[Method, str]] = ..., gamma: _Optional[int] = ..., draft_steps: _Optional[int] = ..., layout: _Optional[_Union[Layout, str]] = ..., fallback: _Optional[_Union[Fallback, str]] = ..., remasking: _Optional[_Union[Remasking, str]] = ..., steps: _Optional[int] = ..., threshold: _Optional[float] = ..., entropy_bound: _Optional[float] = ..., row_budget: _Optional[int] = ..., drafter: _Optional[_Union[Drafter, str]] = ..., routing: _Optional[_Union[Routing, str]] = ..., routing_score: _Optional[_Union[RoutingScore, str]] = ..., routing_cost: _Optional[float] = ..., adaptive: _Optional[bool] = ..., lookahead: _Optional[int] = ..., preset: _Optional[_Union[Preset, str]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("id", "model", "text", "token_ids", "logprobs", "finish_reason", "usage", "stats")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    finish_reason: FinishReason
    usage: Usage
    stats: Stats
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., stats: _Optional[_Union[Stats, _Mapping]] = ...) -> None: ...

class GenerateStreamRequest(_message.Message):
    __slots__ = ("request", "events")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    request: GenerateRequest
    events: bool
    def __init__(self, request: _Optional[_Union[GenerateRequest, _Mapping]] = ..., events: _Optional[bool] = ...) -> None: ...

class GenerateStreamResponse(_message.Message):
    __slots__ = ("id", "text", "token_ids", "logprobs", "events", "finish_reason", "usage", "stats")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    events: _containers.RepeatedCompositeFieldContainer[RoundEvent]
    finish_reason: FinishReason
    usage: Usage
    stats: Stats
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[RoundEvent, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., stats: _Optional[_Union[Stats, _Mapping]] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token_id", "token", "logprob", "top")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    token: bytes
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[TopLogprob]
    def __init__(self, token_id: _Optional[int] = ..., token: _Optional[bytes] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[TopLogprob, _Mapping]]] = ...) -> None: ...

class TopLogprob(_message.Message):
    __slots__ = ("token_id", "token", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    token: bytes
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., token: _Optional[bytes] = ..., logprob: _Optional[float] = ...) -> None: ...

class RoundEvent(_message.Message):
    __slots__ = ("round", "start", "block_size", "drafted", "reveals")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    REVEALS_FIELD_NUMBER: _ClassVar[int]
    round: int
    start: int
    block_size: int
    drafted: _containers.RepeatedCompositeFieldContainer[DraftedToken]
    reveals: _containers.RepeatedCompositeFieldContainer[Reveal]
    def __init__(self, round: _Optional[int] = ..., start: _Optional[int] = ..., block_size: _Optional[int] = ..., drafted: _Optional[_Iterable[_Union[DraftedToken, _Mapping]]] = ..., reveals: _Optional[_Iterable[_Union[Reveal, _Mapping]]] = ...) -> None: ...

class DraftedToken(_message.Message):
    __slots__ = ("index", "token_id", "token")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    index: int
    token_id: int
    token: bytes
    def __init__(self, index: _Optional[int] = ..., token_id: _Optional[int] = ..., token: _Optional[bytes] = ...) -> None: ...

class Reveal(_message.Message):
    __slots__ = ("index", "token_id", "token", "kind")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    index: int
    token_id: int
    token: bytes
    kind: RevealKind
    def __init__(self, index: _Optional[int] = ..., token_id: _Optional[int] = ..., token: _Optional[bytes] = ..., kind: _Optional[_Union[RevealKind, str]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class Stats(_message.Message):
    __slots__ = ("rounds", "target_forwards", "draft_forwards", "drafted", "accepted", "recovered", "bonus", "fallback_tokens", "queue_s", "prefill_s", "decode_s", "accept_histogram")
    class AcceptHistogramEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FORWARDS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FORWARDS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    BONUS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_S_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    target_forwards: int
    draft_forwards: int
    drafted: int
    accepted: int
    recovered: int
    bonus: int
    fallback_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    accept_histogram: _containers.ScalarMap[int, int]
    def __init__(self, rounds: _Optional[int] = ..., target_forwards: _Optional[int] = ..., draft_forwards: _Optional[int] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ..., recovered: _Optional[int] = ..., bonus: _Optional[int] = ..., fallback_tokens: _Optional[int] = ..., queue_s: _Optional[float] = ..., prefill_s: _Optional[float] = ..., decode_s: _Optional[float] = ..., accept_histogram: _Optional[_Mapping[int, int]] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "prompt", "messages", "chat_template_kwargs")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_KWARGS_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    chat_template_kwargs: _struct_pb2.Struct
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., chat_template_kwargs: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("token_ids", "context_tokens")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    context_tokens: int
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., context_tokens: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "context_tokens", "block_size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    context_tokens: int
    block_size: int
    def __init__(self, name: _Optional[str] = ..., context_tokens: _Optional[int] = ..., block_size: _Optional[int] = ...) -> None: ...
