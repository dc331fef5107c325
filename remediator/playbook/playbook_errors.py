"""Errors of playbooks: file, line, column, and the closest valid word."""

from __future__ import annotations


class PolicyError(ValueError):
    """A playbook, or a scenario, that cannot be used."""
