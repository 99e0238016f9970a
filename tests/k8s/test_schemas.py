"""Every manifest fits its schema: KubeRay's, Kubernetes', Ray Serve's; and the schemas are strict enough to tell."""

import copy
import json
from typing import Any

import kubernetes_validate
import pytest
from ray.serve.schema import ServeDeploySchema

from deployments.serve_config import parse_serve_config
from tests.k8s.manifests import OVERLAYS, build, crd_errors, of_kind, ray_service, serve_config_file

KUBERNETES = "1.32"
CUSTOM = ("RayService", "PodMonitor")

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def test_three_overlays() -> None:
    assert OVERLAYS == ["cpu-demo", "gpu-autoscale", "gpu-pair"]


@each_overlay
def test_ray_service_fits_kuberay(overlay: str) -> None:
    assert list(crd_errors(ray_service(overlay))) == []


def _broken(change: str) -> dict[str, Any]:
    found = copy.deepcopy(ray_service("gpu-autoscale"))
    spec = found["spec"]["rayClusterConfig"]
    worker = spec["workerGroupSpecs"][0]
    match change:
        case "unknown field":
            spec["rayVersionn"] = spec.pop("rayVersion")
        case "wrong type":
            worker["maxReplicas"] = "four"
        case "deep unknown field":
            worker["template"]["spec"]["containers"][0]["readinessProb"] = {}
        case "not among the choices":
            spec["autoscalerOptions"]["version"] = "v3"
        case "missing":
            del worker["groupName"]
    return found


@pytest.mark.parametrize(
    "change", ["unknown field", "wrong type", "deep unknown field", "not among the choices", "missing"]
)
def test_what_does_not_fit_kuberay_is_found(change: str) -> None:
    assert list(crd_errors(_broken(change)))


@each_overlay
def test_other_objects_fit_kubernetes(overlay: str) -> None:
    plain = [found for found in build(overlay) if found["kind"] not in CUSTOM]
    assert plain
    for found in plain:
        kubernetes_validate.validate(found, KUBERNETES, strict=True)


def test_what_does_not_fit_kubernetes_is_found() -> None:
    (policy,) = of_kind("cpu-demo", "NetworkPolicy")
    policy["spec"]["podSelectr"] = policy["spec"].pop("podSelector")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(policy, KUBERNETES, strict=True)


@each_overlay
def test_pod_monitor_has_what_the_operator_reads(overlay: str) -> None:
    """Its CRD is not at hand, so field by field."""
    for monitor in of_kind(overlay, "PodMonitor"):
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert set(monitor["spec"]) <= {"selector", "podMetricsEndpoints", "namespaceSelector", "jobLabel"}
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert set(endpoint) <= {"port", "path", "interval", "scrapeTimeout", "relabelings", "metricRelabelings"}
            assert all(set(rule) == {"sourceLabels", "targetLabel"} for rule in endpoint["relabelings"])


@each_overlay
def test_embedded_serve_config_is_the_file(overlay: str) -> None:
    embedded = ray_service(overlay)["spec"]["serveConfigV2"]
    assert embedded == serve_config_file(overlay).read_text(encoding="utf-8")
    assert not any(found["metadata"]["name"].startswith("serve-config") for found in build(overlay))


@each_overlay
def test_serve_config_fits_ray_serve_and_our_arguments(overlay: str) -> None:
    config = parse_serve_config(serve_config_file(overlay).read_text(encoding="utf-8"))
    assert ServeDeploySchema.model_validate(json.loads(config.schema.model_dump_json(exclude_unset=True)))
    assert config.schema.applications[0].name == "simsd"
    assert config.args.draft is not None
