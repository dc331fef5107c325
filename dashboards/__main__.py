"""Write every dashboard to the folder `grafana` beside this file, and what the Helm chart carries into the chart."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.chart import FILES, carried
from dashboards.frame import Board, made

FOLDER = Path(__file__).parent / "grafana"


def text_of(board: Board) -> str:
    """The file of a dashboard."""
    return json.dumps(made(board), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """All of them."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(text_of(board))
    for old in FILES.glob("*/*"):
        old.unlink()
    for name, source in carried().items():
        (FILES / name).parent.mkdir(parents=True, exist_ok=True)
        (FILES / name).write_bytes(source.read_bytes())


if __name__ == "__main__":
    main()
