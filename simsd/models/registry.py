"""The model families, by the name of the architecture in config.json."""

from simsd.errors import CheckpointError
from simsd.models.family import Family
from simsd.models.sdar import ARCHITECTURE, SDAR

FAMILIES: dict[str, Family] = {ARCHITECTURE: SDAR}
"""The known families. A new family is one row."""


def family_of(architecture: str) -> Family:
    """Return the family of an architecture. `CheckpointError` if it is unknown; it names the known ones."""
    family = FAMILIES.get(architecture)
    if family is None:
        raise CheckpointError(f"unknown architecture {architecture!r}; known: {', '.join(sorted(FAMILIES))}")
    return family
