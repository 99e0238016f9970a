"""The overlays as kustomize builds them, and the schemas they must fit. Nothing here talks to a cluster."""

import copy
import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
CRDS = ROOT.parent / "shared" / "kuberay-crds"
OVERLAYS = sorted(path.name for path in (K8S / "overlays").iterdir())
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def _built(overlay: str) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed; it builds the manifests")
    command = ["kubectl", "kustomize", str(K8S / "overlays" / overlay)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def build(overlay: str) -> list[dict[str, Any]]:
    """The overlay's objects; skips the test where there is no kubectl."""
    return list(yaml.load_all(_built(overlay), LOADER))


def of_kind(overlay: str, kind: str) -> list[dict[str, Any]]:
    return [found for found in build(overlay) if found["kind"] == kind]


def ray_service(overlay: str) -> dict[str, Any]:
    (found,) = of_kind(overlay, "RayService")
    return found


def cluster(overlay: str) -> dict[str, Any]:
    spec: dict[str, Any] = ray_service(overlay)["spec"]["rayClusterConfig"]
    return spec


def ray_pods(overlay: str) -> list[dict[str, Any]]:
    """Pod templates: the head's, then each group's of workers."""
    spec = cluster(overlay)
    return [spec["headGroupSpec"]["template"], *(group["template"] for group in spec["workerGroupSpecs"])]


def pods(overlay: str) -> list[dict[str, Any]]:
    """Every pod template of the overlay."""
    others = [found["spec"]["template"] for kind in ("StatefulSet", "Job") for found in of_kind(overlay, kind)]
    return ray_pods(overlay) + others


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


def ports(pod: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for each in containers(pod) for port in each.get("ports", [])}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}


def serve_config_file(overlay: str) -> Path:
    return K8S / "overlays" / overlay / "serve-config.yaml"


@functools.cache
def _crd_schema() -> dict[str, Any]:
    path = CRDS / "ray.io_rayservices.yaml"
    if not path.is_file():
        pytest.skip(f"no KubeRay CRDs in {CRDS.relative_to(ROOT.parent)} beside the project")
    versions = yaml.load(path.read_text(encoding="utf-8"), LOADER)["spec"]["versions"]
    (schema,) = (version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == "v1")
    _make_strict(schema)
    return dict(schema)


def _make_strict(schema: dict[str, Any]) -> None:
    """In place: unknown fields are errors, as the API server prunes them; an int-or-string is either."""
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("anyOf", None)
        schema["type"] = ["integer", "string"]
    properties = schema.get("properties", {})
    if properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    for inner in (*properties.values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            _make_strict(inner)


def _with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """What the API server makes of it before it validates: defaults filled in, nulls dropped."""
    if isinstance(value, list):
        return [_with_defaults(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    defaults = {name: copy.deepcopy(inner["default"]) for name, inner in properties.items() if "default" in inner}
    filled = defaults | {name: inner for name, inner in value.items() if inner is not None}
    return {name: _with_defaults(inner, properties.get(name, {})) for name, inner in filled.items()}


def crd_errors(ray_service: dict[str, Any]) -> Iterator[str]:
    """Where a RayService does not fit KubeRay's schema; skips the test where that is not at hand."""
    schema = _crd_schema()
    metadata = {"metadata": {"type": "object"}}  # the API server's own, not described in a CRD
    whole = schema | {"properties": schema["properties"] | metadata}
    for error in Draft202012Validator(whole).iter_errors(_with_defaults(ray_service, schema)):
        yield f"{error.json_path}: {error.message}"
