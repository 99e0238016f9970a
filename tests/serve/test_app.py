"""Arguments of the application, and the ways to give them."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary
from ray.serve.deployment import Application

from deployments.app import build_app
from deployments.args import ServeArgs
from simsd.errors import ConfigError


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'blok_size'; did you mean 'block_size'"):
        ServeArgs.model_validate({"blok_size": 4})


def test_strings_of_a_command_line() -> None:
    text = {"block_size": "8", "prefix_cache": "false", "temperature": "0.5", "draft": "none", "max_model_len": "None"}
    args = ServeArgs.model_validate(text)
    assert (args.block_size, args.prefix_cache, args.temperature, args.draft) == (8, False, 0.5, None)
    assert args.max_model_len is None
    assert args.worker_config("draft") is None


@pytest.mark.parametrize(
    "given",
    [
        {"block_size": "x"},
        {"kv_tokens": 0},
        {"dtype": "int8"},
        {"method": "magic"},
        {"temperature": -1},
        {"threshold": 2},
    ],
)
def test_values_out_of_range(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(given))):
        ServeArgs.model_validate(given)


@pytest.mark.parametrize("given", [{"pairs": 2, "max_pairs": 1}, {"draft": None, "method": "simsd"}])
def test_settings_that_contradict(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ServeArgs.model_validate(given)


def test_without_a_draft_the_method_is_vanilla() -> None:
    assert ServeArgs(draft=None).decode_params().method == "vanilla"
    assert ServeArgs().decode_params().method == "simsd"


def test_worker_settings_are_passed_on() -> None:
    args = ServeArgs(block_size=8, dtype="bfloat16", kv_tokens=1024, threads=3, draft="small", device="cuda")
    draft = args.worker_config("draft")
    assert draft is not None
    assert (draft.role, draft.model, draft.block_size, draft.dtype, draft.kv_tokens, draft.threads) == (
        ("draft", "small", 8, "bfloat16", 1024, 3)
    )
    assert (args.gpus("draft"), ServeArgs().gpus("draft"), ServeArgs(draft_gpus=0.25).gpus("draft")) == (1, 0, 0.25)


def test_model_name() -> None:
    assert ServeArgs(target="JetLM/SDAR-8B-Chat").model_name == "JetLM/SDAR-8B-Chat"
    assert ServeArgs(served_model_name="mine").model_name == "mine"


def test_front_ends_import_no_torch(repository: Path) -> None:
    code = (
        "import sys, deployments.app, deployments.ingress.server, deployments.coordinator, simsd.cli.serve;"
        "from simsd.tokens.tokenizer import Tokenizer; from simsd.models.files import resolve_model;"
        "Tokenizer.load(resolve_model('shipped', 'target')).encode('a');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=repository, timeout=120).returncode == 0


def test_serve_run_takes_the_builder() -> None:
    """`serve run deployments.app:build_app gamma=2` calls it like this."""
    app = call_user_app_builder_with_args_if_necessary(build_app, {"gamma": "2", "draft": "none"})
    assert isinstance(app, Application)
    with pytest.raises(ConfigError, match="did you mean 'gamma'"):
        call_user_app_builder_with_args_if_necessary(build_app, {"gama": "2"})
