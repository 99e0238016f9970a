"""Answers of the HTTP API, in OpenAI's form and order. Of a chunk, only the members that are set are sent."""

from typing import Literal

from pydantic import BaseModel

from simsd.messages.request import FinishReason, RevealKind, Stats


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """How many drafted tokens were accepted, and how many were not."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(BaseModel):
    """Counts of tokens. The details are known only at the end of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class TopLogprob(BaseModel):
    """One of the likeliest tokens. `bytes` is null for a special token, which adds nothing to the text."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[ChatLogprob]


class TextLogprobs(BaseModel):
    """Log-probabilities of a text's tokens. `text_offset`: where each token begins in the text, in characters."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]

    def followed_by(self, more: "TextLogprobs") -> "TextLogprobs":
        return TextLogprobs(**{name: getattr(self, name) + getattr(more, name) for name in TextLogprobs.model_fields})


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class TextChunkChoice(BaseModel):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None


class Drafted(BaseModel):
    index: int
    token_id: int
    text: str


class Reveal(Drafted):
    kind: RevealKind


class Round(BaseModel):
    """One round of one choice. Indices count the answer's tokens from 0; those of prompt tokens are negative.

    The block takes the indices `start` to `start + block_size - 1`. `drafted` is in step order, `reveals` in the order
    in which they happened.
    """

    round: int
    start: int
    block_size: int
    drafted: list[Drafted]
    reveals: list[Reveal]


class ChoiceRound(BaseModel):
    choice: int
    event: Round


class Answer(BaseModel):
    """The members that all answers have."""

    id: str
    object: str
    created: int
    model: str


class ChatCompletion(Answer):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage
    simsd: Stats


class Completion(Answer):
    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]
    usage: Usage
    simsd: Stats


class Chunk(Answer):
    """One event of a stream. `usage` and the counters in `simsd` come in the last chunk, if they are asked for.

    Each round comes in a chunk of its own. With continuous_usage_stats, every chunk has the usage so far.
    """

    usage: Usage | None = None
    simsd: Stats | ChoiceRound | None = None


class ChatChunk(Chunk):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]


class CompletionChunk(Chunk):
    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChunkChoice]


class ModelEntry(BaseModel):
    """A model that is served. `max_model_len`: the most tokens of prompt and answer together."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "simsd"
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Tokenized(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(BaseModel):
    prompt: str


class Health(BaseModel):
    """How many requests are decoded, and how many wait."""

    status: Literal["ok"] = "ok"
    running: int
    waiting: int


class Version(BaseModel):
    version: str


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail
