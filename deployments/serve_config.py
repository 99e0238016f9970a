"""Serve config files, which a RayService embeds as serveConfigV2: they are read strictly and run on the local Ray.

Serve itself ignores keys that it does not know. Here they are errors, as everywhere else.
"""

import difflib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from ray import serve
from ray.serve.config import AutoscalingConfig
from ray.serve.context import _get_global_client
from ray.serve.schema import (
    ApplicationStatus,
    DeploymentSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
    gRPCOptionsSchema,
)

from deployments.args import ServeArgs
from deployments.local import StartError, start_serve, wait_for_answer
from simsd.errors import ConfigError

BUILDER = "deployments.app:build_app"
DEPLOYMENTS = ("Ingress", "Coordinator", "TargetServer", "DraftServer")
FAILED = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY)
POLL_S = 0.2


@dataclass(frozen=True)
class ServeConfig:
    """A valid config file: Serve's own schema of it, and the application's arguments."""

    schema: ServeDeploySchema
    args: ServeArgs

    @property
    def host(self) -> str:
        return self.schema.http_options.host

    @property
    def port(self) -> int:
        return self.schema.http_options.port

    @property
    def grpc_port(self) -> int:
        """Port of the gRPC interface; 0 if there is none."""
        options = self.schema.grpc_options
        return options.port if options.grpc_servicer_functions else 0

    @property
    def gpus(self) -> float:
        """GPUs that the engines reserve, before any autoscaling."""
        draft = self.args.gpus("draft") if self.args.draft else 0.0
        return self.args.pairs * (self.args.tensor_parallel * self.args.gpus("target") + draft)

    def listening(self, host: str, port: int) -> "ServeConfig":
        """Return the same config at another address."""
        options = self.schema.http_options.model_copy(update={"host": host, "port": port})
        return ServeConfig(self.schema.model_copy(update={"http_options": options}), self.args)

    def with_grpc(self, port: int, services: list[str]) -> "ServeConfig":
        """Return the same config with gRPC at this port."""
        options = gRPCOptionsSchema(port=port, grpc_servicer_functions=services)
        return ServeConfig(self.schema.model_copy(update={"grpc_options": options}), self.args)


def read_serve_config(path: Path) -> ServeConfig:
    """Read a file and check all that needs no models; raises `ConfigError`, which names the file and the field."""
    try:
        return parse_serve_config(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_serve_config(text: str) -> ServeConfig:
    """Parse and check a config; raises `ConfigError`, which names the field, as `applications.0.args.gamma`."""
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}") from error
    if not isinstance(given, dict):
        raise ConfigError("must be a mapping with the key applications")
    try:
        schema = ServeDeploySchema.model_validate(given)
    except ValidationError as error:
        raise _explained(error) from error
    _refuse_unknown(given, ServeDeploySchema)
    if len(schema.applications) != 1:
        raise ConfigError(f"applications: exactly one is served here; the file has {len(schema.applications)}")
    if schema.applications[0].import_path != BUILDER:
        raise ConfigError(f"applications.0.import_path must be {BUILDER}; got {schema.applications[0].import_path}")
    if schema.applications[0].route_prefix != "/":
        raise ConfigError(f"applications.0.route_prefix must be '/'; got {schema.applications[0].route_prefix!r}")
    _check_deployments(given["applications"][0])
    return ServeConfig(schema, _serve_args(schema.applications[0].args))


def _serve_args(given: dict[str, Any]) -> ServeArgs:
    try:
        return ServeArgs.model_validate(given)
    except ValidationError as error:
        raise _explained(error, "applications.0.args.") from error
    except ConfigError as error:
        raise ConfigError(f"applications.0.args: {error}") from error


def _check_deployments(application: dict[str, Any]) -> None:
    _refuse_unknown(application, ServeApplicationSchema, "applications.0.")
    for i, deployment in enumerate(application.get("deployments", [])):
        where = f"applications.0.deployments.{i}."
        _refuse_unknown(deployment, DeploymentSchema, where)
        if deployment["name"] not in DEPLOYMENTS:
            raise ConfigError(f"{where}name must be one of {', '.join(DEPLOYMENTS)}; got {deployment['name']!r}")
        autoscaling = deployment.get("autoscaling_config") or {}
        _refuse_unknown(autoscaling, AutoscalingConfig, f"{where}autoscaling_config.")
        try:
            AutoscalingConfig.model_validate(autoscaling)
        except ValidationError as error:
            raise _explained(error, f"{where}autoscaling_config.") from error


def _refuse_unknown(given: dict[str, Any], schema: type[BaseModel], where: str = "") -> None:
    """Raise `ConfigError` for an unknown key, here or in any object below for which the schema has a model."""
    for key, value in given.items():
        field = schema.model_fields.get(key)
        if field is None:
            near = difflib.get_close_matches(str(key), schema.model_fields, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(schema.model_fields)}"
            raise ConfigError(f"{where}{key}: no such setting; {hint}")
        inner = field.annotation
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, BaseModel):
            _refuse_unknown(value, inner, f"{where}{key}.")


def _explained(error: ValidationError, where: str = "") -> ConfigError:
    return ConfigError("; ".join(_line(dict(one), where) for one in error.errors()))


def _line(error: dict[str, Any], where: str) -> str:
    field = (where + ".".join(map(str, error["loc"]))).rstrip(".")
    got = "" if isinstance(error["input"], dict) else f"; got {error['input']!r}"
    return f"{field}: {error['msg'].removeprefix('Value error, ')}{got}"


def deploy_config(config: ServeConfig, verbose: bool = False) -> None:
    """Start Serve on the running Ray and deploy as KubeRay does; returns when the server answers requests."""
    schema = config.schema
    start_serve(
        verbose,
        proxy_location=schema.proxy_location,
        http_options=schema.http_options.model_dump(),
        grpc_options=schema.grpc_options.model_dump(),
        logging_config=schema.logging_config,
        tracing_config=schema.tracing_config,
        controller_options=schema.controller_options,
    )
    _get_global_client().deploy_apps(schema)
    name = schema.applications[0].name
    while True:
        found = serve.status().applications.get(name)
        if found and found.status == ApplicationStatus.RUNNING:
            break
        if found and found.status in FAILED:
            raise StartError(found.message)
        time.sleep(POLL_S)
    wait_for_answer(config.host, config.port, config.grpc_port)
