"""What one file says another must say too: ports, names, images, models, times, GPUs."""

import fnmatch
import re
import tomllib
from typing import Any

import pytest

from deployments import app, engine
from deployments.ingress.environment import KEYS_FILE
from deployments.local import ENVIRONMENT, GRPC_SERVICES
from deployments.serve_config import ServeConfig, read_serve_config
from simsd import __version__
from simsd.models.files import FILES
from tests.k8s.manifests import (
    K8S,
    OVERLAYS,
    ROOT,
    cluster,
    containers,
    environment,
    of_kind,
    pods,
    ports,
    ray_pods,
    ray_service,
    serve_config_file,
)

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
METRICS_PORT, AGENT_PORT, DASHBOARD_PORT, GCS_PORT = 8080, 52365, 8265, 6379
"""Ray's own, as KubeRay starts it."""
DEPLOY = ROOT / "docs" / "deploy.md"


def config_of(overlay: str) -> ServeConfig:
    return read_serve_config(serve_config_file(overlay))


def replicas(config: ServeConfig, name: str) -> int:
    """Most replicas of a deployment."""
    for deployment in config.schema.applications[0].deployments:
        if deployment.name == name and isinstance(deployment.autoscaling_config, dict):
            return int(deployment.autoscaling_config["max_replicas"])
    return 1 if name == "Ingress" else config.args.most_pairs


@each_overlay
def test_ports_of_serve_and_ray(overlay: str) -> None:
    config = config_of(overlay)
    assert config.schema.grpc_options.grpc_servicer_functions == [GRPC_SERVICES]
    assert config.host == "0.0.0.0"
    shared = {"serve": config.port, "serve-grpc": config.grpc_port, "metrics": METRICS_PORT, "agent": AGENT_PORT}
    head, *workers = ray_pods(overlay)
    for worker in workers:
        assert ports(worker) == shared
    assert shared.items() <= ports(head).items()
    assert (ports(head)["dashboard"], ports(head)["gcs-server"]) == (DASHBOARD_PORT, GCS_PORT)
    for pod in ray_pods(overlay):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert pod["spec"]["containers"][0][probe]["httpGet"]["port"] in ports(pod)


@each_overlay
def test_selectors_and_the_ports_behind_them(overlay: str) -> None:
    """Policies, monitors and services choose pods that are there, and name ports that these have."""
    templates = pods(overlay)

    def chosen(labels: dict[str, str]) -> list[dict[str, Any]]:
        found = [pod for pod in templates if labels.items() <= pod["metadata"]["labels"].items()]
        assert found, labels
        return found

    for policy in of_kind(overlay, "NetworkPolicy"):
        known = {name for pod in chosen(policy["spec"]["podSelector"]["matchLabels"]) for name in ports(pod)}
        for rule in policy["spec"]["ingress"]:
            assert {port["port"] for port in rule.get("ports", [])} <= known
            for peer in rule.get("from", []):
                if "namespaceSelector" not in peer:
                    chosen(peer["podSelector"]["matchLabels"])
    for monitor in of_kind(overlay, "PodMonitor"):
        for pod in chosen(monitor["spec"]["selector"]["matchLabels"]):
            assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= set(ports(pod))
    for service in of_kind(overlay, "Service"):
        for pod in chosen(service["spec"]["selector"]):
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports(pod))


@each_overlay
def test_every_object_is_in_the_namespace(overlay: str) -> None:
    (namespace,) = of_kind(overlay, "Namespace")
    name = namespace["metadata"]["name"]
    assert f"-n {name} " in DEPLOY.read_text(encoding="utf-8")
    for kind in ("RayService", "NetworkPolicy", "Service", "StatefulSet", "Job", "PodMonitor", "ConfigMap"):
        assert all(found["metadata"]["namespace"] == name for found in of_kind(overlay, kind))


@each_overlay
def test_labels_that_kuberay_selects_by_are_left_alone(overlay: str) -> None:
    for pod in ray_pods(overlay):
        assert not any(label.startswith(("ray.io/", "app.kubernetes.io/")) for label in pod["metadata"]["labels"])
    assert len(ray_service(overlay)["metadata"]["name"]) <= 47


@each_overlay
def test_images(overlay: str) -> None:
    variant = "cpu" if overlay.startswith("cpu") else "cuda"
    images = {each["image"] for pod in pods(overlay) for each in containers(pod)}
    ours = {image for image in images if image.startswith("simsd-serve")}
    assert ours == {f"simsd-serve:{__version__}-{variant}"}
    assert all(re.search(r":\d", image) for image in images)
    for text in ((K8S / "Dockerfile").read_text(), DEPLOY.read_text(encoding="utf-8")):
        assert f"VARIANT={variant} -t {ours.copy().pop()}" in re.sub(" +", " ", text)


@each_overlay
def test_ray_is_the_version_in_the_image(overlay: str) -> None:
    assert f"ray=={cluster(overlay)['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()


@each_overlay
def test_volumes_secrets_and_claims_are_there(overlay: str) -> None:
    claims = {found["metadata"]["name"] for found in of_kind(overlay, "PersistentVolumeClaim")}
    documented = DEPLOY.read_text(encoding="utf-8")
    secrets = set()
    for pod in pods(overlay):
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        own = {claim["metadata"]["name"] for found in of_kind(overlay, "StatefulSet") for claim in _templates(found)}
        for each in containers(pod):
            assert {mount["name"] for mount in each.get("volumeMounts", [])} <= set(volumes) | own
            secrets |= {
                entry["valueFrom"]["secretKeyRef"]["name"] for entry in each.get("env", []) if "valueFrom" in entry
            }
        secrets |= {volume["secret"]["secretName"] for volume in volumes.values() if "secret" in volume}
        used = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes.values() if _claimed(volume)]
        assert set(used) <= claims
    assert all(f"create secret generic {secret} " in documented for secret in secrets)


def _templates(stateful_set: dict[str, Any]) -> list[dict[str, Any]]:
    return list(stateful_set["spec"].get("volumeClaimTemplates", []))


def _claimed(volume: dict[str, Any]) -> bool:
    return "persistentVolumeClaim" in volume


@pytest.mark.parametrize("overlay", ["gpu-pair", "gpu-autoscale"])
def test_redis_is_the_one_that_is_there(overlay: str) -> None:
    (service,) = of_kind(overlay, "Service")
    options = cluster(overlay)["gcsFaultToleranceOptions"]
    assert options["redisAddress"] == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    (redis,) = of_kind(overlay, "StatefulSet")
    (password,) = redis["spec"]["template"]["spec"]["containers"][0]["env"]
    assert password["valueFrom"] == options["redisPassword"]["valueFrom"]


@pytest.mark.parametrize("overlay", ["gpu-pair", "gpu-autoscale"])
def test_api_keys_are_mounted_where_the_ingress_reads_them(overlay: str) -> None:
    _, worker = ray_pods(overlay)
    container = worker["spec"]["containers"][0]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "api-keys")
    directory, name = environment(container)[KEYS_FILE].rsplit("/", 1)
    assert directory == mount["mountPath"]
    assert f"create secret generic simsd-api-keys --from-file={name}=" in DEPLOY.read_text(encoding="utf-8")


@pytest.mark.parametrize("overlay", ["gpu-pair", "gpu-autoscale"])
def test_models_are_fetched_where_the_arguments_look_for_them(overlay: str) -> None:
    args = config_of(overlay).args
    fetched = {}
    for pod in pods(overlay):
        for each in containers(pod):
            if each.get("command", [""])[0] == "hf":
                _, _, repository, flag, directory = each["command"]
                assert flag == "--local-dir"
                fetched[directory] = repository
                assert each["args"][::2] == ["--include"] * len(FILES)
                assert sorted(each["args"][1::2]) == sorted(FILES)
                assert any(directory.startswith(mount["mountPath"]) for mount in each["volumeMounts"])
    assert set(fetched) == {args.target, args.draft}
    assert fetched[args.target] == f"JetLM/{args.served_model_name}"
    _, worker = ray_pods(overlay)
    mounts = [mount["mountPath"] for mount in worker["spec"]["containers"][0]["volumeMounts"]]
    assert all(any(path.startswith(mount) for mount in mounts) for path in fetched)


@each_overlay
def test_streams_may_end_before_anything_is_killed(overlay: str) -> None:
    """Serve stops a replica, Ray drains a node, Kubernetes stops a pod, KubeRay a cluster: each waits longer."""
    streams = config_of(overlay).args.drain_s + app.LEASE_ENDS_S
    for worker in ray_pods(overlay)[1:]:
        drain = float(environment(worker["spec"]["containers"][0])["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert streams < drain < worker["spec"]["terminationGracePeriodSeconds"]
    spec = ray_service(overlay)["spec"]
    assert spec["rayClusterDeletionDelaySeconds"] > streams
    assert spec["upgradeStrategy"] == {"type": "NewCluster"}


@each_overlay
def test_all_replicas_find_room(overlay: str) -> None:
    """Logical CPUs and GPUs of the workers against what the deployments reserve, at their most."""
    config = config_of(overlay)
    (group,) = cluster(overlay)["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    pairs = config.args.most_pairs
    engines = 2 * pairs * (app.REPLICA_CPUS + engine.ENGINE_CPUS)
    cpus = engines + app.REPLICA_CPUS * (pairs + replicas(config, "Ingress"))
    assert cpus <= group["maxReplicas"] * int(limits["cpu"])
    assert pairs * config.gpus / config.args.pairs == group["maxReplicas"] * int(limits.get("nvidia.com/gpu", 0))
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert cluster(overlay)["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert ray_service(overlay)["spec"]["excludeHeadPodFromServeSvc"] is True


def test_autoscaling() -> None:
    spec = cluster("gpu-autoscale")
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["version"] == "v2"
    assert spec["workerGroupSpecs"][0]["template"]["spec"]["restartPolicy"] == "Never"
    config = config_of("gpu-autoscale")
    assert config.args.max_pairs > config.args.pairs
    [ingress] = config.schema.applications[0].deployments
    assert ingress.name == "Ingress", "the others scale by max_pairs, and only so"
    most = config.args.max_pairs * (config.args.max_running + config.args.max_queued)
    assert ingress.max_ongoing_requests * ingress.autoscaling_config["max_replicas"] >= most
    assert all("enableInTreeAutoscaling" not in cluster(overlay) for overlay in ("cpu-demo", "gpu-pair"))


@each_overlay
def test_environment_is_known_to_the_code(overlay: str) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "deployments").rglob("*.py"))
    for pod in ray_pods(overlay):
        given = environment(pod["spec"]["containers"][0])
        assert all(f'"{name}"' in sources for name in given if name.startswith("SIMSD_"))
        proxy = {name: value for name, value in ENVIRONMENT.items() if name.startswith("RAY_SERVE") and "GRPC" in name}
        assert len(proxy) == 3
        assert given.items() >= proxy.items()


@each_overlay
def test_containers_run_without_privileges_and_with_requests(overlay: str) -> None:
    for pod in pods(overlay):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        for each in containers(pod):
            context = each["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert set(each["resources"]["requests"]) >= {"cpu", "memory"}
            assert "memory" in each["resources"]["limits"]


def test_dockerfile_has_all_that_the_package_is_made_of() -> None:
    text = (K8S / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = set(re.findall(r"^COPY (?!--from)(.*) \S+$", text, flags=re.MULTILINE))
    copied = {name for line in copied for name in line.split()}
    assert packages | {"pyproject.toml", "constraints.txt", project["project"]["readme"]} <= copied
    assert all((ROOT / name).exists() for name in copied)
    allowed = [line[1:] for line in (K8S / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    assert copied == set(allowed)
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", text, flags=re.MULTILINE)
    assert tuple(map(int, python.split("."))) >= (3, 11)
    assert {stage for stage in re.findall(r" AS (\S+)", text) if fnmatch.fnmatch(stage, "torch-*")} == {
        "torch-cpu",
        "torch-cuda",
    }


def test_commands_of_the_guide_name_what_is_there() -> None:
    text = DEPLOY.read_text(encoding="utf-8")
    for path in re.findall(r"\bk8s/[\w./-]+", text):
        assert (ROOT / path.rstrip(".")).exists(), path
    assert all(f"k8s/overlays/{overlay}" in text for overlay in OVERLAYS)
