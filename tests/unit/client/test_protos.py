"""The proto file, what is generated from it, and the client: in step with each other and with our own types."""

import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from packaging.requirements import Requirement

import simsd
from deployments.ingress import schemas
from simsd.messages import presets, request
from simsd.messages.options import Option, Place, options_of
from simsd_client import CallError, Options, SimSDClient
from simsd_client.requests import generate_request
from simsd_client.v1 import simsd_pb2

ROOT = Path(__file__).parents[3]
PROTO = "protos/simsd/v1/simsd.proto"
DECODE_OPTIONS = options_of(request.DecodeParams)
GENERATED = ("simsd_pb2.py", "simsd_pb2.pyi", "simsd_pb2_grpc.py")


def protoc(*options: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Isimsd_client/v1=protos/simsd/v1", *options, PROTO]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)


def test_stubs_are_those_of_the_proto_file(tmp_path: Path) -> None:
    protoc(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", f"--grpc_python_out={tmp_path}")
    stale = [
        name
        for name in GENERATED
        if (tmp_path / "simsd_client" / "v1" / name).read_text() != (ROOT / "simsd_client" / "v1" / name).read_text()
    ]
    assert not stale, f"run `make protos`; written with grpcio-tools {importlib.metadata.version('grpcio-tools')}"


def elements(message: DescriptorProto, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """(path in the file, name) of a message and of what is in it; map entries have no text of their own."""
    yield path, message.name
    for index, field in enumerate(message.field):
        yield (*path, DescriptorProto.FIELD_FIELD_NUMBER, index), f"{message.name}.{field.name}"
    assert all(nested.options.map_entry for nested in message.nested_type), "nested messages need a visit too"


def test_everything_in_the_proto_file_has_a_comment_and_a_name_in_style(tmp_path: Path) -> None:
    """The names that buf's standard rules ask for, without buf."""
    protoc(f"--descriptor_set_out={tmp_path / 'set'}", "--include_source_info")
    (file,) = FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
    named = {path: name for i, message in enumerate(file.message_type) for path, name in elements(message, (4, i))}
    for i, enum in enumerate(file.enum_type):
        named[5, i] = enum.name
        words = "".join(f"_{char}" if char.isupper() else char for char in enum.name).upper().strip("_")
        assert enum.value[0].name == f"{words}_UNSPECIFIED"
        for j, value in enumerate(enum.value):
            named[5, i, 2, j] = value.name
            assert value.name.startswith(f"{words}_")
    (service,) = file.service
    assert service.name.endswith("Service")
    for j, method in enumerate(service.method):
        named[6, 0, 2, j] = method.name
        assert method.input_type == f".simsd.v1.{method.name}Request"
        assert method.output_type == f".simsd.v1.{method.name}Response"
    assert len(named) > 100
    assert not sorted(name for path, name in named.items() if not comments.get(path, "").strip())


def words(enum: EnumDescriptor) -> set[str]:
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix).lower() for value in enum.values if value.number}


@pytest.mark.parametrize(
    ("enum", "literal"),
    [
        (simsd_pb2.FinishReason, request.FinishReason),
        (simsd_pb2.Preset, presets.Preset),
        (simsd_pb2.RevealKind, request.RevealKind),
        (simsd_pb2.Role, schemas.Message.model_fields["role"].annotation),
    ],
    ids=lambda value: getattr(getattr(value, "DESCRIPTOR", None), "name", ""),
)
def test_enums_have_our_words(enum: Any, literal: Any) -> None:
    assert words(enum.DESCRIPTOR) == set(get_args(literal))


@pytest.mark.parametrize("option", [o for o in DECODE_OPTIONS.values() if o.choices], ids=lambda option: option.name)
def test_options_have_our_words(option: Option) -> None:
    """In the proto file and in what the client's type checker sees."""
    assert words(simsd_pb2.SimSDOptions.DESCRIPTOR.fields_by_name[option.name].enum_type) == set(option.choices)
    assert set(get_args(get_type_hints(Options)[option.name])) == set(option.choices)


def fields(message: Any) -> set[str]:
    return set(message.DESCRIPTOR.fields_by_name)


def test_messages_have_our_fields() -> None:
    placed = {place: {o.name for o in DECODE_OPTIONS.values() if o.place == place} for place in get_args(Place)}
    assert fields(simsd_pb2.SimSDOptions) == placed["simsd"] | {"preset"}
    assert fields(simsd_pb2.GenerateRequest) >= placed["body"]
    assert fields(simsd_pb2.Usage) | fields(simsd_pb2.Stats) == set(request.Stats.__dataclass_fields__)
    not_here = {"n", "stream", "stream_options", "user", "top_logprobs", "max_completion_tokens"}
    asked = fields(simsd_pb2.GenerateRequest) - {"prompt", "prompt_token_ids"}
    assert asked == schemas.ChatRequest.model_fields.keys() - not_here


def test_the_client_takes_every_option() -> None:
    inputs = {"prompt", "prompt_token_ids", "messages", "simsd"}
    every = (fields(simsd_pb2.GenerateRequest) - inputs) | fields(simsd_pb2.SimSDOptions)
    assert set(get_type_hints(Options)) == every
    assert set(get_args(get_type_hints(Options)["preset"])) == set(presets.PRESETS)


def test_requests_of_the_client() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    request = generate_request(
        turns,
        {"stop": "x", "logit_bias": {5: -1.5}, "method": "exact", "gamma": 2, "chat_template_kwargs": {"a": True}},
    )
    assert [(turn.role, turn.content) for turn in request.messages] == [
        (simsd_pb2.ROLE_SYSTEM, "Be brief."),
        (simsd_pb2.ROLE_USER, "Hi"),
    ]
    assert (list(request.stop), dict(request.logit_bias)) == (["x"], {5: -1.5})
    assert (request.simsd.method, request.simsd.gamma) == (simsd_pb2.METHOD_EXACT, 2)
    assert dict(request.chat_template_kwargs) == {"a": True}
    assert list(generate_request([1, 2], {}).prompt_token_ids) == [1, 2]
    assert generate_request([], {}).HasField("prompt")
    with pytest.raises(TypeError, match="gama"):
        generate_request("x", {"gama": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match="vanilla, simsd, exact, s2d2"):
        generate_request("x", {"method": "magic"})  # type: ignore[typeddict-item]
    with pytest.raises(ValueError, match="role"):
        generate_request([{"role": "robot", "content": "x"}], {})


def test_a_server_that_is_not_there() -> None:
    with SimSDClient("127.0.0.1:1", timeout_s=5) as client, pytest.raises(CallError) as caught:
        client.models()
    assert caught.value.code.name == "UNAVAILABLE"
    assert (caught.value.field, caught.value.reason, caught.value.retry_after_s) == (None, None, None)


ALONE = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "ray", "transformers", "simsd", "deployments", "pydantic", "numpy"}:
            raise ImportError(f"{name} is not for the client")

sys.meta_path.insert(0, Refused())
import simsd_client
with simsd_client.SimSDClient("127.0.0.1:1"):
    pass
"""


def test_the_client_stands_alone() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", ALONE], cwd=ROOT, check=True, timeout=60)


def test_the_clients_own_package_is_in_step() -> None:
    client = tomllib.loads((ROOT / "simsd_client" / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert client["version"] == simsd.__version__
    assert set(client["dependencies"]) <= set(server["dependencies"])
    assert {Requirement(line).name for line in client["dependencies"]} == {
        "googleapis-common-protos",
        "grpcio",
        "protobuf",
    }
