"""The tokenizer: equal to transformers' own, strict about prompts, free of torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from simsd.errors import CheckpointError, RequestError
from simsd.models.files import ASSETS
from simsd.tokens.tokenizer import Tokenizer
from tests.unit import toy_tokenizer
from tests.unit.toy_tokenizer import MASK_ID, QWEN_LIKE

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi  <there>\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello 😀"},
    {"role": "user", "content": "  two words & 'more' "},
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_tokenizer.write(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory)


@pytest.fixture(scope="module")
def oracle(directory: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(directory)


# Hypothesis knows the special tokens from this package's sources; they have no text, and the mask token is refused.
plain_text = st.text(min_size=1).filter(lambda text: not any(token in text for token in toy_tokenizer.SPECIAL))


@given(text=plain_text)
def test_encode_and_back(tokenizer: Tokenizer, oracle: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == oracle.encode(text)
    assert tokenizer.decode(ids) == text


@given(ids=st.lists(st.integers(0, 321)))
def test_decode_is_transformers_and_the_sum_of_its_bytes(
    tokenizer: Tokenizer, oracle: PreTrainedTokenizerFast, ids: list[int]
) -> None:
    expected = oracle.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert tokenizer.decode(ids) == expected
    assert b"".join(map(tokenizer.token_bytes, ids)).decode(errors="replace") == expected


@pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
@pytest.mark.parametrize("template", [toy_tokenizer.CHATML, QWEN_LIKE])
def test_chat_ids_are_transformers(tmp_path: Path, template: str, variables: dict[str, bool]) -> None:
    toy_tokenizer.write(tmp_path, template)
    oracle = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    expected = oracle.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False, **variables)
    assert Tokenizer.load(tmp_path).encode_messages(CHAT, **variables) == expected


def test_thinking_is_up_to_the_request(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(toy_tokenizer.write(tmp_path, QWEN_LIKE))
    user = [{"role": "user", "content": "Hi"}]
    assert tokenizer.render(user).endswith("<|im_start|>assistant\n")
    assert tokenizer.render(user, enable_thinking=False).endswith("<think>\n\n</think>\n\n")


def test_qwens_slow_files_give_the_same_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> None:
    slow = Tokenizer.load(toy_tokenizer.write_slow(tmp_path))
    assert slow.content_hash == tokenizer.content_hash
    assert slow.mask_token_id == MASK_ID
    assert slow.encode_messages(CHAT[:1]) == tokenizer.encode_messages(CHAT[:1])


def test_hash_follows_content_not_layout(tmp_path: Path, directory: Path, tokenizer: Tokenizer) -> None:
    path = toy_tokenizer.write(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content, indent=7, sort_keys=True))
    assert Tokenizer.load(tmp_path).content_hash == tokenizer.content_hash
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(content))
    assert Tokenizer.load(tmp_path).content_hash != tokenizer.content_hash


def test_sizes_and_ids(tokenizer: Tokenizer, oracle: PreTrainedTokenizerFast) -> None:
    assert tokenizer.vocab_size == len(oracle) == 322
    assert tokenizer.mask_token_id == MASK_ID
    assert tokenizer.token_id("<|im_end|>") == oracle.convert_tokens_to_ids("<|im_end|>")


def test_mask_token_is_the_arguments_then_the_tokenizers(tmp_path: Path) -> None:
    toy_tokenizer.write(tmp_path)
    assert Tokenizer.load(tmp_path).mask_token_id == MASK_ID
    assert Tokenizer.load(tmp_path, mask_token_id=9).mask_token_id == 9


def test_the_mask_token_is_refused_as_text_and_as_id(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="mask token") as caught:
        tokenizer.encode("fill <|mask|> in")
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="mask token") as caught:
        tokenizer.encode_messages([{"role": "user", "content": "<|mask|>"}])
    assert caught.value.param == "messages"
    with pytest.raises(RequestError, match="mask token"):
        tokenizer.check_ids([5, MASK_ID])


@pytest.mark.parametrize(("ids", "message"), [([], "empty"), ([322], "322"), ([-1], "-1")])
def test_ids_out_of_the_vocabulary_are_refused(tokenizer: Tokenizer, ids: list[int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        tokenizer.check_ids(ids)


@pytest.mark.parametrize("text", ["", "\ud83d"])
def test_text_that_is_none_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError) as caught:
        tokenizer.encode(text)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "empty"),
        ([{"role": "tool", "content": "x"}], r"messages\[0\].role must be one of system, user, assistant"),
        ([{"role": "user", "content": None}], r"messages\[0\].content"),
        ([{"role": "user", "content": "\udc00"}], "Unicode"),
    ],
)
def test_messages_that_are_none_are_refused(tokenizer: Tokenizer, messages: list[dict[str, str]], says: str) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        tokenizer.encode_messages(messages)
    assert caught.value.param == "messages"


def test_a_templates_own_refusal_reaches_the_client(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(toy_tokenizer.write(tmp_path, QWEN_LIKE))
    with pytest.raises(RequestError, match="a system message is required"):
        tokenizer.encode_messages([{"role": "user", "content": "Hi"}], require_system=True)


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "continue_final_message"])
def test_template_variables_are_no_way_into_the_library(tokenizer: Tokenizer, name: str) -> None:
    with pytest.raises(RequestError, match=name):
        tokenizer.encode_messages([{"role": "user", "content": "Hi"}], **{name: "x"})


def test_a_template_cannot_reach_python(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(toy_tokenizer.write(tmp_path, "{{ messages.__class__.__mro__[1].__subclasses__() }}"))
    with pytest.raises(CheckpointError, match="the model's chat template fails on these messages: SecurityError"):
        tokenizer.encode_messages([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% for m in messages %}", "is broken in line 1"),
        ("\n{{ messages | nonsense }}", "is broken in line 2: No filter named 'nonsense'"),
        ("{{ messages | length + 'x' }}", "fails: TypeError"),
        ("{{ 1 / 0 }}", "fails: ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_broken_template_is_found_at_start(tmp_path: Path, template: str, says: str, file: str) -> None:
    toy_tokenizer.write(tmp_path, None)
    if file == "chat_template.jinja":
        (tmp_path / file).write_text(template)
    else:
        content = json.loads((tmp_path / file).read_text()) | {"chat_template": template}
        (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / file}: the chat template {says}")
    assert "\n" not in str(caught.value)


def test_a_template_that_wants_more_than_one_message_is_not_broken(tmp_path: Path) -> None:
    template = "{% if messages | length < 2 %}{{ raise_exception('two messages') }}{% endif %}ok"
    tokenizer = Tokenizer.load(toy_tokenizer.write(tmp_path, template))
    assert tokenizer.render([{"role": "user", "content": "Hi"}] * 2) == "ok"
    with pytest.raises(RequestError, match="refuses these messages: two messages"):
        tokenizer.render([{"role": "user", "content": "Hi"}])


def test_faults_at_run_time_are_the_templates_or_the_requests(tmp_path: Path) -> None:
    """By its own words or on a request's variables it is the request; by itself it is the template."""
    template = "{% if messages | length > 1 %}{{ 1 + 'x' }}{% endif %}{{ (width or 3) * 2 + 1 }}"
    tokenizer = Tokenizer.load(toy_tokenizer.write(tmp_path, template))
    user = [{"role": "user", "content": "Hi"}]
    assert tokenizer.render(user, width=5) == "11"
    with pytest.raises(RequestError, match=r"chat_template_kwargs: .* TypeError") as caught:
        tokenizer.render(user, width=[1])
    assert caught.value.param == "chat_template_kwargs"
    for variables in ({}, {"width": 5}):  # these change nothing about it
        with pytest.raises(CheckpointError, match="the model's chat template fails on these messages: TypeError"):
            tokenizer.render(user * 2, **variables)


def test_no_template_is_said(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(toy_tokenizer.write(tmp_path, None))
    with pytest.raises(RequestError, match="no chat template"):
        tokenizer.encode_messages([{"role": "user", "content": "Hi"}])


def test_missing_and_broken_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Tokenizer.load(tmp_path)


def test_only_byte_level_tokenizers(tmp_path: Path) -> None:
    path = toy_tokenizer.write(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["decoder"] = {"type": "Fuse"}
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="byte-level"):
        Tokenizer.load(tmp_path)


def test_torch_stays_out(directory: Path) -> None:
    """The ingress tokenises and renders; it must not pay for torch."""
    code = (
        "import sys, simsd.tokens.text, simsd.models.files, simsd.loop.loop\n"
        "from pathlib import Path; from simsd.tokens.tokenizer import Tokenizer\n"
        f"t = Tokenizer.load(Path({str(directory)!r}))\n"
        "t.decode(t.encode_messages([{'role': 'user', 'content': 'Hi'}])); t.content_hash\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not ASSETS.is_dir(), reason="the shipped pair is not there yet")
def test_the_shipped_template_and_tokenizers() -> None:
    target, draft = (Tokenizer.load(ASSETS / role) for role in ("target", "draft"))
    assert target.content_hash == draft.content_hash
    oracle = PreTrainedTokenizerFast.from_pretrained(ASSETS / "target")
    expected = oracle.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert target.encode_messages(CHAT) == expected
    with pytest.raises(RequestError, match="mask token"):
        target.encode(oracle.mask_token)
