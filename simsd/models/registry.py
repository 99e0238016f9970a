"""Architectures by the name that config.json has for them."""

from simsd.errors import CheckpointError
from simsd.models.family import Family
from simsd.models.sdar import ARCHITECTURE, SDAR

FAMILIES: dict[str, Family] = {ARCHITECTURE: SDAR}
"""A new family is one row."""


def family_of(architecture: str) -> Family:
    """`CheckpointError` with the known names if the architecture is none of them."""
    family = FAMILIES.get(architecture)
    if family is None:
        raise CheckpointError(f"unknown architecture {architecture!r}; known: {', '.join(sorted(FAMILIES))}")
    return family
