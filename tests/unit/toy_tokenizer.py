"""A byte-level tokenizer made in the test: all 256 bytes, some merges, special tokens, added plain tokens."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
MASK_ID = 3
TEXT = (
    "the cat sat on the mat",
    "你好，世界",
    "naïve café 😀😃 🇫🇷",
    "stop here: END of text ### done",
    "def f(x): return x + 1",
)

CHATML = """{% for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# The parts of Qwen3's template that differ from plain ChatML: tojson, macros of state, trimmed blocks, enable_thinking.
QWEN_LIKE = """
{%- if messages[0].role != 'system' and require_system is defined and require_system %}
    {{- raise_exception('a system message is required') }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages %}
    {%- if message.role == 'user' or message.role == 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
        {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def build() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("two words", special=False)])
    return tokenizer


def write(directory: Path, template: str | None = CHATML) -> Path:
    """Files of a checkpoint's tokenizer in `directory`."""
    build().save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "mask_token": "<|mask|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    if template is not None:
        (directory / "chat_template.jinja").write_text(template)
    return directory


def write_slow(directory: Path) -> Path:
    """The same as Qwen's slow tokenizer saves it: vocab.json and merges.txt, added tokens in the settings."""
    content = json.loads(build().to_str())
    added = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in content["added_tokens"]}
    (directory / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in content["model"]["merges"])
    (directory / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_qwen2.Qwen2Tokenizer", None]},
        "added_tokens_decoder": added,
        "eos_token": "<|im_end|>",
        "mask_token": "<|mask|>",
        "chat_template": CHATML,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def write_letters(directory: Path, count: int) -> Path:
    """A tokenizer of so many letters, and a mask token behind them: for models with as small a vocabulary."""
    tokenizer = Tokenizer(models.BPE({chr(ord("a") + i): i for i in range(count)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|mask|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<|mask|>"}))
    return directory
