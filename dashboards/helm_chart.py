"""Which of these files the Helm chart carries: Helm reads nothing outside of the chart, so it has copies."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
FILES = HERE.parent / "deploy" / "helm" / "gpu-healthd" / "files"


def list_chart_files() -> dict[str, Path]:
    """Path below `FILES`: the file that is copied there."""
    boards = {f"dashboards/{file.name}": file for file in (HERE / "grafana").glob("*.json")}
    rules = {f"rules/{name}.yaml": HERE / "prometheus" / f"{name}.yaml" for name in ("recording", "alerts")}
    return boards | rules
