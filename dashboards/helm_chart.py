"""The files copied into the Helm chart, since Helm reads nothing outside of the chart."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
FILES = HERE.parent / "deploy" / "helm" / "gpu-healthd" / "files"


def list_chart_files() -> dict[str, Path]:
    """Path below `FILES`: the file to copy there."""
    boards = {f"dashboards/{file.name}": file for file in (HERE / "grafana").glob("*.json")}
    rules = {f"rules/{name}.yaml": HERE / "prometheus" / f"{name}.yaml" for name in ("recording", "alerts")}
    return boards | rules
