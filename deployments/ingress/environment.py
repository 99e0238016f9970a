"""Settings that the ingress takes from its environment: API keys, which arguments would expose, and leniency."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.args import ServeArgs
from deployments.ingress.errors import UnauthorizedError
from simsd.errors import ConfigError

KEYS = "SIMSD_API_KEYS"
KEYS_FILE = "SIMSD_API_KEYS_FILE"
IGNORE_UNKNOWN_FIELDS = "SIMSD_IGNORE_UNKNOWN_FIELDS"


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """The keys that clients may send as `Authorization: Bearer KEY`. Without any, all requests are served."""

    keys: tuple[bytes, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ApiKeys":
        """Read the keys of SIMSD_API_KEYS (separated by commas) and of the file SIMSD_API_KEYS_FILE (one a line).

        Raises `ConfigError` if the file cannot be read, or if either is set and has no key.
        """
        found: list[str] = []
        if listed := environment.get(KEYS):
            found += _keys_of(listed.split(","), KEYS)
        if path := environment.get(KEYS_FILE):
            try:
                lines = Path(path).read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{KEYS_FILE}: {path} cannot be read: {error}") from error
            found += _keys_of(lines, f"{KEYS_FILE}: {path}")
        return cls(tuple(key.encode() for key in found))

    def __bool__(self) -> bool:
        return bool(self.keys)

    def check(self, authorization: str | None) -> int | None:
        """Return the index of the key in the header, None if the server has no keys; raises `UnauthorizedError`.

        Keys are compared in constant time.
        """
        if not self.keys:
            return None
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise UnauthorizedError("this server needs an API key: send the header `Authorization: Bearer KEY`")
        key = given.strip().encode("latin-1", "replace")
        matches = [hmac.compare_digest(key, known) for known in self.keys]  # all are compared, so time tells nothing
        if not any(matches):
            raise UnauthorizedError("the API key is not one of this server's")
        return matches.index(True)


def keys_of(args: ServeArgs, environment: Mapping[str, str]) -> ApiKeys:
    """Read the keys as `ApiKeys.from_environment`; raises `ConfigError` also for a limit per key without keys."""
    keys = ApiKeys.from_environment(environment)
    if args.max_requests_per_key and not keys:
        raise ConfigError(f"max_requests_per_key needs keys: set {KEYS} or {KEYS_FILE}")
    return keys


def ignores_unknown_fields(environment: Mapping[str, str]) -> bool:
    """Return whether unknown fields of bodies are ignored; raises `ConfigError` if the setting is neither 0 nor 1."""
    value = environment.get(IGNORE_UNKNOWN_FIELDS, "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"{IGNORE_UNKNOWN_FIELDS} must be 0 or 1; got {value!r}")
    return value == "1"


def _keys_of(parts: list[str], source: str) -> list[str]:
    keys = [part.strip() for part in parts if part.strip()]
    if not keys:
        raise ConfigError(f"{source} has no key")
    return keys
