"""The pair's tokenizer: byte-level BPE with ChatML markers, in which every digit is a token of its own."""

from pathlib import Path
from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from simsd.eval.families import FAMILIES

VOCAB_SIZE = 768
END_OF_TEXT, IM_START, IM_END, MASK, PAD = range(5)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>", "<|pad|>")

CHAT_TEMPLATE = """\
{% for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

CORPUS = {"math": 4000, "code": 4000, "trivia": 12000, "choice": 4000}
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
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(text, special=True) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    assert [tokenizer.token_to_id(text) for text in SPECIAL] == list(range(5))
    return tokenizer


def chat_prompt(messages: list[tuple[str, str]]) -> str:
    """Return the text that the chat template makes of (role, content) pairs, with the generation prompt."""
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
