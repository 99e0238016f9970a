"""What does not fit is refused before any request, in words that name both sides."""

import dataclasses
from pathlib import Path

import pytest
import torch

from simsd.config import LoopConfig, WorkerConfig
from simsd.errors import CheckpointError, ConfigError, PairMismatchError
from simsd.in_process import LocalClient, build_local
from simsd.loop.loop import Loop
from simsd.messages.pair import check_pair
from simsd.messages.worker import WorkerInfo
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.worker import Worker
from tests.unit.checkpoints import Shape, write_checkpoint

TINY = Shape(
    hidden_size=16, layers=1, heads=1, kv_heads=1, head_dim=16, intermediate_size=16, max_position_embeddings=90
)
DRAFT = WorkerInfo(
    role="draft",
    model="small",
    weights_hash="1",
    architecture="SDARForCausalLM",
    vocab_size=100,
    tokenizer_hash="abc",
    mask_token_id=3,
    block_size=4,
    eos_token_ids=(2,),
    max_model_len=64,
    page_size=16,
    pages=8,
    max_rows=64,
    device="cpu",
    dtype="float32",
)
TARGET = dataclasses.replace(DRAFT, role="target", model="large")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), TINY, eos_token_ids=[2, 0])


def worker(path: Path, **settings: object) -> Worker:
    return Worker(WorkerConfig(role="target", model=str(path), kv_tokens=128, **settings))  # type: ignore[arg-type]


def test_a_pair_that_agrees_passes() -> None:
    check_pair(DRAFT, TARGET)
    free = dataclasses.replace(TARGET, pages=3, page_size=8, max_model_len=32, dtype="bfloat16", device="cuda")
    check_pair(DRAFT, free)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("vocab_size", 101, "vocab size (draft small: 100, target large: 101)"),
        ("tokenizer_hash", "xyz", "tokenizer hash (draft small: abc, target large: xyz)"),
        ("mask_token_id", 5, "mask token id (draft small: 3, target large: 5)"),
        ("block_size", 8, "block size (draft small: 4, target large: 8)"),
    ],
)
def test_a_mismatch_names_both_sides(field: str, value: object, says: str) -> None:
    with pytest.raises(PairMismatchError) as caught:
        check_pair(DRAFT, dataclasses.replace(TARGET, **{field: value}))  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert str(caught.value).count("small") == 1  # and nothing that agrees


def test_every_mismatch_is_named_at_once() -> None:
    with pytest.raises(PairMismatchError) as caught:
        check_pair(DRAFT, dataclasses.replace(TARGET, vocab_size=101, block_size=8))
    assert "vocab size (draft small: 100, target large: 101); block size (draft small: 4, target large: 8)" in str(
        caught.value
    )


@pytest.mark.parametrize("difference", ["vocabulary", "tokenizer", "mask", "block"])
def test_a_loop_over_a_pair_that_does_not_fit_is_refused(checkpoint: Path, tmp_path: Path, difference: str) -> None:
    """From real checkpoints: the names in the message are the models as the user wrote them."""
    shape = dataclasses.replace(TINY, vocab_size=400) if difference == "vocabulary" else TINY
    write_checkpoint(tmp_path, shape)
    if difference == "tokenizer":
        content = (tmp_path / "tokenizer.json").read_text()
        (tmp_path / "tokenizer.json").write_text(content.replace("two words", "two wordz"))
    draft = WorkerConfig(
        role="draft",
        model=str(tmp_path),
        kv_tokens=128,
        mask_token_id=5 if difference == "mask" else None,
        block_size=8 if difference == "block" else None,
    )
    target = WorkerConfig(role="target", model=str(checkpoint), kv_tokens=128)
    with pytest.raises(PairMismatchError) as caught:
        build_local(target, draft, LoopConfig())
    word = {"vocabulary": "vocab size", "tokenizer": "tokenizer hash", "mask": "mask token", "block": "block size"}
    assert word[difference] in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert str(checkpoint) in str(caught.value)


def test_a_worker_says_what_it_is(checkpoint: Path) -> None:
    info = worker(checkpoint, dtype="float32").info
    assert (info.role, info.model, info.architecture) == ("target", str(checkpoint), "SDARForCausalLM")
    assert (info.vocab_size, info.block_size, info.mask_token_id) == (TINY.vocab_size, 4, 3)
    assert info.eos_token_ids == (0, 2)  # generation_config's two; the second is the end of turn too
    assert info.tokenizer_hash == Tokenizer.load(checkpoint).content_hash
    assert (info.page_size, info.pages) == (16, 8)
    assert info.max_model_len == 88  # 90 positions hold 22 whole blocks
    assert (info.device, info.dtype) == ("cpu", "float32")


def test_end_of_turn_ends_answers_even_where_the_checkpoint_forgets_it(tmp_path: Path) -> None:
    assert worker(write_checkpoint(tmp_path, TINY, eos_token_ids=[7])).info.eos_token_ids == (2, 7)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"page_size": 10}, "page_size 10 is not a whole number of blocks of 4"),
        ({"page_size": 12, "block_size": 8}, "page_size 12 is not a whole number of blocks of 8"),
        ({"mask_token_id": 400}, "mask_token_id 400 is not in the vocabulary of 336"),
        ({"dtype": "float16", "device": "cpu"}, "float16 is not available on the CPU; use float32 or bfloat16"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not available here"),
        ({"device": "abacus"}, "device 'abacus' is not available here"),
    ],
)
def test_start_up_errors(checkpoint: Path, settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        worker(checkpoint, **settings)
    assert says in str(caught.value)


@pytest.mark.parametrize("lacks", ["block_size", "mask_token_id"])
def test_what_nobody_tells_is_asked_for(tmp_path: Path, lacks: str) -> None:
    """A checkpoint without block_size or mask_token_id, of a name that tells nothing; an argument helps."""
    path = write_checkpoint(tmp_path, TINY, **{lacks: None})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"neither arguments, config nor name tell block_size and mask_token_id"):
        worker(path)
    assert getattr(worker(path, **{lacks: 4}).info, lacks) == 4


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [("blocksize", 4, "block_size"), ("kv_token", 64, "kv_tokens"), ("devise", "cpu", "device")],
)
def test_an_unknown_setting_names_the_nearest(field: str, value: object, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{field}'; did you mean '{nearest}'"):
        WorkerConfig(role="target", **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("block_size", [1, 2, 4, 8, 16])
def test_default_pages_hold_at_least_sixteen_tokens_in_whole_blocks(checkpoint: Path, block_size: int) -> None:
    info = worker(checkpoint, block_size=block_size).info
    assert info.page_size == 16
    assert info.max_rows >= block_size * (block_size + 2)


def test_a_checkpoint_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY, tokenizer=False)
    with pytest.raises(CheckpointError, match=r"no tokenizer.json"):
        worker(tmp_path)


@pytest.mark.parametrize(("dtype", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_dtype_on_the_cpu(checkpoint: Path, dtype: str, expected: torch.dtype) -> None:
    loaded = worker(checkpoint, dtype=dtype, device="cpu")
    assert loaded.model.model.embed_tokens.weight.dtype == loaded.kv[0].dtype == expected


def test_a_loop_needs_no_draft(checkpoint: Path) -> None:
    loop = Loop(LocalClient(worker(checkpoint)), None, Tokenizer.load(checkpoint), LoopConfig())
    assert loop.load() == (0, 0)
