"""The Helm chart as Helm itself renders it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import skip_or_fail

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "gpu-healthd"


def rendered(values: dict[str, Any], namespace: str = "gpu-health") -> dict[str, str]:
    """File name in `templates`: its text. Raises Helm's own error."""
    if importlib.util.find_spec("helm_python") is None:
        skip_or_fail("no Helm library for this platform")
    import helm_python  # noqa: PLC0415 - eighty megabytes, and not for every platform

    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(values, name="gpu-healthd", namespace=namespace)
    return {path.rpartition("/")[2]: text.strip() + "\n" for path, text in texts.items() if text.strip()}


def documents(values: dict[str, Any], namespace: str = "gpu-health") -> dict[tuple[str, str], dict[str, Any]]:
    """Kind and name: the object."""
    found = [
        document
        for file, text in rendered(values, namespace).items()
        if file.endswith(".yaml")
        for document in yaml.safe_load_all(text)
    ]
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found), "two objects of one name"
    return named
