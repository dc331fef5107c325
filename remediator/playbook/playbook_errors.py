"""How a mistake in a playbook is told: the file, the line, the column, and the nearest right word."""

from __future__ import annotations


class PolicyError(ValueError):
    """A playbook, or a scenario, that cannot be used."""
