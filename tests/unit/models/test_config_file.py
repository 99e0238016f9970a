"""Settings of a checkpoint: obeyed or refused by name, and each value of the right type and range."""

import json
from pathlib import Path
from typing import Any

import pytest

from simsd.errors import CheckpointError
from simsd.models.checkpoint import load_model_config
from simsd.models.loading import load_model
from simsd.models.sdar import block_size_from_name
from tests.unit.checkpoints import write_checkpoint
from tests.unit.models.test_registry import UNTIED, edit_config


@pytest.mark.parametrize("architectures", [[], ["SDARForCausalLM", "Other"], None])
def test_architectures_must_name_one(tmp_path: Path, architectures: list[str] | None) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, architectures=architectures)
    with pytest.raises(CheckpointError, match="exactly one class"):
        load_model(directory)


def test_missing_config_is_named(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    (directory / "config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"{tmp_path.name}: no config.json"):
        load_model(directory)


@pytest.mark.parametrize("key", ["vocab_size", "num_key_value_heads", "rms_norm_eps"])
def test_config_that_lacks_a_key_names_it(tmp_path: Path, key: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, drop=key)
    with pytest.raises(CheckpointError, match=f"config.json: lacks {key}"):
        load_model(directory)


def test_scaled_rope_is_refused_not_ignored(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    with pytest.raises(CheckpointError, match=r"yarn.* not supported"):
        load_model(directory)


@pytest.mark.parametrize(
    ("name", "block_size"),
    [
        ("JetLM/SDAR-8B-Chat", 4),
        ("JetLM/SDAR-1.7B-Chat", 4),
        ("JetLM/SDAR-8B-Chat-b8", 8),
        ("JetLM/SDAR-8B-Chat-b16", 16),
        ("JetLM/SDAR-1.7B-Chat-b64", 64),
        ("SDAR-4B-Chat-b32", 32),
        ("Qwen/Qwen3-8B", None),
        ("someone/model-b8", None),
        ("", None),
    ],
)
def test_block_size_from_the_name(name: str, block_size: int | None) -> None:
    assert block_size_from_name(name) == block_size


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("JetLM/SDAR-8B-Chat-b16", (None, None), (16, 151669)),
        ("JetLM/SDAR-8B-Chat", (None, None), (4, 151669)),
        ("JetLM/SDAR-8B-Chat-b16", (8, 5), (8, 5)),  # the file is believed before the name
        ("JetLM/SDAR-8B-Chat-b16", (None, 0), (16, 0)),  # 0 is an id, not "none"
        ("other/model", (None, None), (None, None)),
        ("other/model", (4, 3), (4, 3)),
    ],
)
def test_name_fills_in_what_the_file_lacks(
    tmp_path: Path, name: str, written: tuple[int | None, int | None], expected: tuple[int | None, int | None]
) -> None:
    write_checkpoint(tmp_path, UNTIED, block_size=written[0], mask_token_id=written[1], tokenizer=False)
    config = load_model_config(tmp_path, name)
    assert (config.block_size, config.mask_token_id) == expected


def test_directory_name_serves_as_the_name(tmp_path: Path) -> None:
    directory = tmp_path / "SDAR-1.7B-Chat-b8"
    write_checkpoint(directory, UNTIED, block_size=None, mask_token_id=None, tokenizer=False)
    config = load_model_config(directory)
    assert (config.block_size, config.mask_token_id) == (8, 151669)


@pytest.mark.parametrize(
    ("generation", "in_config", "expected"),
    [
        ({"eos_token_id": [301, 300]}, 7, (301, 300)),
        ({"eos_token_id": 9}, 7, (9,)),
        ({"temperature": 0.6}, 7, (7,)),
        (None, [7, 8], (7, 8)),
        (None, None, ()),
    ],
)
def test_eos_ids(tmp_path: Path, generation: dict[str, Any] | None, in_config: Any, expected: tuple[int, ...]) -> None:
    """generation_config.json first, every id of it; config.json where that says nothing."""
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, eos_token_id=in_config)
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    assert load_model_config(directory).eos_token_ids == expected


@pytest.mark.parametrize(
    ("changes", "theta"),
    [({"rope_theta": 1000000}, 1e6), ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}, 5e5)],
)
def test_rope_theta_in_the_old_and_the_new_place(tmp_path: Path, changes: dict[str, Any], theta: float) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, **changes)
    assert load_model_config(directory).rope_theta == theta


def test_head_dim_defaults_to_its_share_of_hidden(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, drop="head_dim")
    assert load_model_config(directory).head_dim == UNTIED.hidden_size // UNTIED.heads


def refusal(directory: Path, **changes: Any) -> str:
    """What is said of a config.json with these changes."""
    write_checkpoint(directory, UNTIED, tokenizer=False)
    edit_config(directory, **changes)
    with pytest.raises(CheckpointError) as caught:
        load_model_config(directory)
    message = str(caught.value)
    assert message.startswith(f"{directory / 'config.json'}: ")
    assert "\n" not in message
    return message.removeprefix(f"{directory / 'config.json'}: ")


@pytest.mark.parametrize("value", ["4", 4.0, -4, 0, 65, True, None, [4]])
def test_values_that_are_no_block_size(tmp_path: Path, value: Any) -> None:
    message = refusal(tmp_path, block_size=value)
    assert message.startswith("block_size must be a whole number from 1 to 64")
    assert message.endswith(f"; it is {json.dumps(value)}")


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "max_position_embeddings",
        "head_dim",
    ],
)
@pytest.mark.parametrize("value", ["8", 8.0, -8, 0, True, [8]])
def test_values_that_are_no_sizes(tmp_path: Path, key: str, value: Any) -> None:
    assert refusal(tmp_path, **{key: value}) == f"{key} must be a whole number from 1; it is {json.dumps(value)}"


@pytest.mark.parametrize("key", ["vocab_size", "rms_norm_eps"])
def test_what_every_model_has_is_not_null(tmp_path: Path, key: str) -> None:
    assert refusal(tmp_path, **{key: None}) == f"{key} must have a value; it is null"


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta"])
@pytest.mark.parametrize("value", ["1e-6", 0, -1.0, True, float("inf"), float("nan")])
def test_values_that_are_no_numbers(tmp_path: Path, key: str, value: Any) -> None:
    assert refusal(tmp_path, **{key: value}).startswith(f"{key} must be a number above 0; it is ")


@pytest.mark.parametrize("value", ["false", "true", 0, 1])
@pytest.mark.parametrize("key", ["tie_word_embeddings", "use_sliding_window"])
def test_values_that_are_no_flags(tmp_path: Path, key: str, value: Any) -> None:
    assert refusal(tmp_path, **{key: value}) == f"{key} must be true or false; it is {json.dumps(value)}"


@pytest.mark.parametrize("value", [-1, "3", 3.0, True, [3]])
def test_values_that_are_no_mask_token(tmp_path: Path, value: Any) -> None:
    message = refusal(tmp_path, mask_token_id=value)
    assert message == f"mask_token_id must be a whole number from 0; it is {json.dumps(value)}"


@pytest.mark.parametrize("value", [-1, 336, "2", ["2", 0], [2, 336], [2, -1], [True], [2.0], {"a": 1}])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_values_that_are_no_end_tokens(tmp_path: Path, value: Any, file: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    path = directory / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | {"eos_token_id": value}))
    allowed = "must be a token id or a list of them, each from 0 to 335"
    with pytest.raises(CheckpointError) as caught:
        load_model_config(directory)
    assert str(caught.value) == f"{path}: eos_token_id {allowed}; it is {json.dumps(value)}"


def test_heads_and_their_sizes_fit_each_other(tmp_path: Path) -> None:
    assert refusal(tmp_path, num_key_value_heads=3) == "num_key_value_heads must divide num_attention_heads 4; it is 3"
    message = refusal(tmp_path, hidden_size=50, head_dim=None)
    assert message == "hidden_size must be a multiple of num_attention_heads 4; it is 50"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("hidden_act", 1),
        ("attention_bias", True),
        ("attention_bias", 0),
        ("mlp_bias", True),
        ("use_qkv_bias", True),
        ("use_qk_norm", False),
        ("partial_rotary_factor", 0.5),
        ("rotary_pct", 0.25),
        ("rope_type", "yarn"),
        ("rope_base", 1e6),
        ("rotary_emb_base", 1e6),
        ("original_max_position_embeddings", 4096),
        ("final_logit_softcapping", 30.0),
        ("quantization_config", {"quant_method": "fp8"}),
        ("layer_types", ["sliding_attention"]),
        ("layer_types", ["full_attention", "full_attention"]),  # there is one layer
        ("layer_types", "full_attention"),
    ],
)
def test_settings_that_would_change_the_result(tmp_path: Path, key: str, value: Any) -> None:
    message = refusal(tmp_path, **{key: value})
    assert message.startswith(f"{key} ")
    assert message.endswith(f"; it is {json.dumps(value)}")


@pytest.mark.parametrize(
    "changes",
    [{"sliding_window": 4096}, {"sliding_window": 4096, "use_sliding_window": True}, {"use_sliding_window": True}],
)
def test_a_window_in_force(tmp_path: Path, changes: dict[str, Any]) -> None:
    key, value = next(iter(changes.items()))
    assert refusal(tmp_path, **changes) == f"{key} is in force, which is not supported; it is {json.dumps(value)}"


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    "rope",
    [
        {"type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0},
        {"rope_type": "default", "factor": 2.0},
        {"rope_type": "default", "mrope_section": [16, 24, 24]},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"factor": 4.0},
        {"full_attention": {"rope_type": "llama3"}},
    ],
)
def test_rope_that_is_not_the_default(tmp_path: Path, key: str, rope: dict[str, Any]) -> None:
    message = refusal(tmp_path, **{key: rope})
    assert message.startswith(key)
    assert message.endswith("is not supported; only the default RoPE is")


@pytest.mark.parametrize("rope", ["default", 1, ["default"], True])
def test_rope_that_is_no_description(tmp_path: Path, rope: Any) -> None:
    message = refusal(tmp_path, rope_scaling=rope)
    assert message == f"rope_scaling must be an object; it is {json.dumps(rope)}"


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}},
        {"rope_theta": 1e6, "rope_scaling": {"rope_theta": 1e4}},
        {
            "rope_theta": None,
            "rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}},
        },
    ],
)
def test_bases_that_disagree_are_both_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    message = refusal(tmp_path, **changes)
    assert message.startswith("the base of RoPE must be one number; ")
    assert "rope_theta is 1e+06" in message
    assert "rope_theta is 10000" in message


@pytest.mark.parametrize("base", ["1e6", 0, True])
def test_a_nested_base_that_is_no_number(tmp_path: Path, base: Any) -> None:
    message = refusal(tmp_path, rope_theta=None, rope_parameters={"rope_theta": base})
    assert message == f"rope_parameters.rope_theta must be a number above 0; it is {json.dumps(base)}"


@pytest.mark.parametrize(
    ("changes", "theta"),
    [
        ({"hidden_act": "silu", "attention_bias": False, "mlp_bias": None}, 1e4),
        ({"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28}, 1e4),
        ({"sliding_window": None, "layer_types": ["full_attention"], "partial_rotary_factor": 1.0}, 1e4),
        ({"rope_scaling": {"rope_type": "default"}}, 1e4),
        ({"rope_scaling": {"type": "default"}}, 1e4),
        ({"rope_scaling": {}, "rope_parameters": None}, 1e4),
        ({"rope_theta": 1e6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6),
        ({"rope_theta": None, "rope_scaling": {"rope_theta": 5e5, "rope_type": "default"}}, 5e5),
        ({"rope_theta": None, "rope_parameters": {"full_attention": {"rope_theta": 5e5}}}, 5e5),
        ({"rope_theta": None}, 1e4),
    ],
)
def test_neutral_spellings_load_and_are_obeyed(tmp_path: Path, changes: dict[str, Any], theta: float) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, **changes)
    assert load_model_config(directory).rope_theta == theta


@pytest.mark.parametrize("name", ["mine/my-SDAR-8B-Chat", "SDAR-8B-Chat/checkpoint", "SDAR", "SDAR-8B-Chat-b16-tuned"])
def test_names_that_are_like_public_ones(name: str) -> None:
    assert block_size_from_name(name) is None


@pytest.mark.parametrize(("name", "size"), [("JetLM/SDAR-30B-A3B-Sci", 4), ("SDAR-30B-A3B-Chat-b32", 32)])
def test_the_larger_public_names(name: str, size: int) -> None:
    assert block_size_from_name(name) == size


def test_what_only_the_name_tells_is_known_for_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, UNTIED, block_size=None, tokenizer=False)
    assert load_model_config(tmp_path, "JetLM/SDAR-8B-Chat-b16").named == ("block_size",)
    write_checkpoint(tmp_path, UNTIED, block_size=None, mask_token_id=None, tokenizer=False)
    assert load_model_config(tmp_path, "JetLM/SDAR-8B-Chat").named == ("block_size", "mask_token_id")
    write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    assert load_model_config(tmp_path, "JetLM/SDAR-8B-Chat-b16").named == ()


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    message = refusal(tmp_path, layer_types=["sliding_attention"] * 40)
    assert message.endswith("…")
    assert len(message) < 200
