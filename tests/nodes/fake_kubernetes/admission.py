"""Admission policies as the API server asks them: the shipped manifests, their CEL evaluated by Google's own library.

Variables are put into the expressions that use them: so they are evaluated only where they are needed, as the API server does.
An expression that cannot be evaluated denies (``failurePolicy: Fail``).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

NAMES = ("object", "oldObject", "request", "namespaceObject")
_VARIABLE = re.compile(r"variables\.(\w+)")


def why_not() -> str:
    """Why there is no evaluator here; empty if there is."""
    return "" if importlib.util.find_spec("cel_expr_python") else "no cel-expr-python for this platform"


class Policies:
    """Every ValidatingAdmissionPolicy among `documents` that a binding puts into force."""

    def __init__(self, documents: Iterable[dict[str, Any]]) -> None:
        found = list(documents)
        bound = {d["spec"]["policyName"] for d in found if d["kind"] == "ValidatingAdmissionPolicyBinding"}
        self._specs = {
            d["metadata"]["name"]: d["spec"]
            for d in found
            if d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"] in bound
        }

    @property
    def in_force(self) -> bool:
        """Whether there are any."""
        return bool(self._specs)

    def denied(self, resource: str, given: dict[str, Any]) -> str:
        """Why a request is denied; empty where every policy lets it through.

        Args:
            resource: with its subresource, as rules name it, e.g. ``nodes/status``.
            given: `NAMES`; ``request`` has at least ``operation`` and ``userInfo``.
        """
        for name, spec in self._specs.items():
            rules = spec["matchConstraints"]["resourceRules"]
            operation = given["request"]["operation"]
            if not any(resource in rule["resources"] and operation in rule["operations"] for rule in rules):
                continue
            variables = {each["name"]: each["expression"] for each in spec.get("variables", [])}
            conditions = [each["expression"] for each in spec.get("matchConditions", [])]
            if not all(_value(expression, given) is True for expression in conditions):
                continue
            for each in spec["validations"]:
                value = _value(_whole(each["expression"], variables), given)
                if value is not True:
                    because = each["message"] if value is False else f"{each['expression']}: {value}"
                    return f"ValidatingAdmissionPolicy '{name}' denied request: {because}"
        return ""


def _whole(expression: str, variables: dict[str, str]) -> str:
    while _VARIABLE.search(expression):
        expression = _VARIABLE.sub(lambda match: f"({variables[match[1]]})", expression)
    return expression


def _value(expression: str, given: dict[str, Any]) -> Any:
    """What an expression comes to: true, false, or what went wrong."""
    result = _compiled(expression).eval(data={name: given.get(name) for name in NAMES})
    return result.value()


@cache
def _compiled(expression: str) -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - not for every platform

    return cel.NewEnv(variables=dict.fromkeys(NAMES, cel.Type.DYN)).compile(expression)


def user_of(account: str, node: str = "") -> dict[str, Any]:
    """Who a request comes from: a service account of ours, in a pod on `node`."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    return {"username": f"system:serviceaccount:gpu-health:{account}", "extra": extra}
