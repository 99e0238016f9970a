"""`simsd serve --config`: the file of the CPU overlay, run as KubeRay would have it, and files that are refused."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from deployments.processes import descendants
from deployments.serve_config import parse_serve_config
from simsd.errors import ConfigError
from simsd.worker.ports import free_port
from simsd_client import SimSDClient
from tests.serve.cluster import alive
from tests.serve.command import STOPPED_WITHIN_S, refused, started

OVERLAYS = Path(__file__).parents[2] / "k8s" / "overlays"
CPU_DEMO = OVERLAYS / "cpu-demo" / "serve-config.yaml"


@pytest.mark.serve
@pytest.mark.slow
def test_cpu_overlay_answers(short_tmp: Path) -> None:
    port, grpc_port = free_port(), free_port()
    options = ("--config", str(CPU_DEMO), "--host", "127.0.0.1", "--grpc-port", str(grpc_port))
    with started(port, short_tmp / "t", *options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n"
        assert process.stdout.readline() == f"ready grpc 127.0.0.1:{grpc_port}\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30) as response:
            assert json.load(response)["data"][0]["id"] == "simsd-demo"
        with SimSDClient(f"127.0.0.1:{grpc_port}", timeout_s=60) as client:
            question = [{"role": "user", "content": "What is the capital of France?"}]
            answer = client.generate(question, max_tokens=16)
        assert "Paris" in answer.text
        # The file's args say draft_steps 1; another forward may be drafted ahead.
        assert answer.stats.draft_forwards <= 2 * answer.stats.target_forwards
        family = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(STOPPED_WITHIN_S) == 0
        assert not any(alive(pid) for pid in family)


def test_files_and_options_that_are_refused(tmp_path: Path) -> None:
    assert "--gamma" in refused("--config", str(CPU_DEMO), "--gamma", "2")
    missing = tmp_path / "missing.yaml"
    assert str(missing) in refused("--config", str(missing))
    gpu = OVERLAYS / "gpu-pair" / "serve-config.yaml"
    assert "draft: no directory /models/SDAR-1.7B-Chat" in refused("--config", str(gpu), "--port", str(free_port()))
    reserving = tmp_path / "gpus.yaml"
    reserving.write_text(CPU_DEMO.read_text().replace("device: cpu", "device: cpu\n      target_gpus: 99"))
    message = refused("--config", str(reserving), "--port", str(free_port()), "--grpc-port", str(free_port()))
    assert "99 GPUs" in message


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (("device:", "devise:"), "applications.0.args: ServeArgs: unknown setting 'devise'; did you mean 'device'"),
        (("dtype: bfloat16", "dtype: int8"), "applications.0.args.dtype"),
        (("max_running: 64", "max_running: 0"), "applications.0.args.max_running"),
        (("  port: 8000", "  prt: 8000"), "http_options.prt: no such setting; did you mean 'port'"),
        (("  port: 9000", "  prt: 9000"), "grpc_options.prt: no such setting"),
        (("encoding:", "encodin:"), "logging_config.encodin"),
        (("name: Ingress", "name: Ingres"), "applications.0.deployments.0.name must be one of Ingress"),
        (("num_replicas:", "num_replica:"), "applications.0.deployments.0.num_replica: no such setting"),
        (("upscale_delay_s:", "upscale_s:"), "applications.0.deployments.0.autoscaling_config.upscale_s"),
        (("min_replicas: 1", "min_replicas: 9"), "applications.0.deployments.0.autoscaling_config: max_replicas"),
        (("deployments.app:build_app", "some.other:app"), "applications.0.import_path must be"),
        (("route_prefix: /", "route_prefix: /llm"), "applications.0.route_prefix"),
        (("applications:", "application:"), "applications: Field required"),
        (("http_options:", "http_options: ["), "not valid YAML"),
    ],
)
def test_errors_name_the_field(change: tuple[str, str], names: str) -> None:
    text = (OVERLAYS / "gpu-autoscale" / "serve-config.yaml").read_text().replace(*change)
    with pytest.raises(ConfigError) as refusal:
        parse_serve_config(text)
    assert names in str(refusal.value)


def test_exactly_one_application() -> None:
    text = CPU_DEMO.read_text()
    second = text.split("applications:\n")[1].replace("name: simsd", "name: other", 1).replace("route_prefix: /", "")
    with pytest.raises(ConfigError, match="exactly one"):
        parse_serve_config(text + second.replace("import_path", "route_prefix: /other\n    import_path"))
    with pytest.raises(ConfigError, match="mapping"):
        parse_serve_config("- applications")
