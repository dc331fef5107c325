"""Role-based access: a request in, as Kubernetes names it, and whether rules allow it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A verb on a resource of a group."""

    verb: str
    group: str
    resource: str


def allowed(asked: Asked, rules: list[dict[str, Any]] | None) -> bool:
    """Whether one of `rules` (of a ClusterRole) allows it; None: everything is."""
    return rules is None or asked in granted(rules)


def granted(rules: list[dict[str, Any]]) -> set[Asked]:
    """Everything that `rules` allow, one by one."""
    return {
        Asked(verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
