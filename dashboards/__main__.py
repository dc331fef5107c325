"""Write every dashboard to the folder `grafana` beside this file."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.boards import BOARDS
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


if __name__ == "__main__":
    main()
