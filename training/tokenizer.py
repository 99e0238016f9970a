"""The pair's tokenizer: byte-level BPE with ChatML markers, in which every digit is a token of its own."""

import json
from pathlib import Path
from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from simsd.eval.families import FAMILIES

VOCAB_SIZE = 1024
END_OF_TEXT, IM_START, IM_END, MASK, PAD = range(5)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>", "<|pad|>")

CALL_MARKS = ("<tool_call>", "</tool_call>")
"""Tokens of their own, but not special ones: they are part of the text, as in Qwen3."""

CHAT_TEMPLATE = """\
{%- set system = messages[0]['content'] + '\\n' if messages[0]['role'] == 'system' else '' %}
{%- if tools %}
    {{- '<|im_start|>system\\n' + system + 'Tools:\\n' }}
    {%- for tool in tools %}
        {{- '{"name": ' + tool.function.name | tojson + ', "arguments": {' }}
        {%- for key, value in (tool.function.parameters.properties or {}).items() %}
            {{- key | tojson + ': ' + (value.type or 'string') | tojson + ('' if loop.last else ', ') }}
        {%- endfor %}
        {{- '}}\\n' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
    {%- if system %}{% set messages = messages[1:] %}{% endif %}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {%- set arguments = call.function.arguments %}
        {{- '<tool_call>\\n{"name": ' + call.function.name | tojson + ', "arguments": ' }}
        {{- (arguments if arguments is string else arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
"""ChatML. Tools stand in the system message, each as the call that it takes with types for values."""

CORPUS = {"math": 8000, "code": 6000, "trivia": 12000, "choice": 4000, "records": 6000, "manners": 2000}
"""Texts of each family. Trivia has the most, so that its many rare words are not cut into letters."""


def train_tokenizer(seed: int) -> Tokenizer:
    """Train the tokenizer on text of the training split; ids 0 to 4 are the tokens of SPECIAL."""
    rng = Random(f"tokenizer/{seed}")
    texts = []
    for name, n in CORPUS.items():
        for _ in range(n):
            question = FAMILIES[name].draw(rng, "train")
            texts.append(f"user\n{question.prompt}\nassistant\n{question.answer}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(CALL_MARKS),
        special_tokens=[AddedToken(text, special=True) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(list(CALL_MARKS))
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    assert [tokenizer.token_to_id(text) for text in SPECIAL] == list(range(5))
    return tokenizer


def chat_prompt(messages: list[tuple[str, str]], tools: str = "") -> str:
    """Return the text that the chat template makes of (role, content) pairs and tools, with the generation prompt.

    tools: JSON in OpenAI's form, or empty.
    """
    if tools:
        functions = [tool["function"] for tool in json.loads(tools)]
        lines = [
            json.dumps(
                {"name": f["name"], "arguments": {k: v["type"] for k, v in f["parameters"]["properties"].items()}}
            )
            for f in functions
        ]
        system = [content for role, content in messages[:1] if role == "system"]
        messages = [("system", "\n".join([*system, "Tools:", *lines, ""])), *messages[len(system) :]]
    turns = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return turns + "<|im_start|>assistant\n"


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[IM_END],
        pad_token=SPECIAL[PAD],
        mask_token=SPECIAL[MASK],
        additional_special_tokens=[SPECIAL[IM_START], SPECIAL[END_OF_TEXT]],
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(str(directory))
