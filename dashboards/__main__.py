"""Writes every dashboard to the folder `grafana` beside this file, and the Helm chart's copies."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.board_layout import Board, build_dashboard
from dashboards.boards import BOARDS
from dashboards.helm_chart import FILES, list_chart_files

FOLDER = Path(__file__).parent / "grafana"


def render_dashboard_json(board: Board) -> str:
    """The JSON text of a dashboard."""
    return json.dumps(build_dashboard(board), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(render_dashboard_json(board))
    for old in FILES.glob("*/*"):
        old.unlink()
    for name, source in list_chart_files().items():
        (FILES / name).parent.mkdir(parents=True, exist_ok=True)
        (FILES / name).write_bytes(source.read_bytes())


if __name__ == "__main__":
    main()
