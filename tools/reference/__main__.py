"""``python -m tools.reference``: write every page anew."""

from __future__ import annotations

from pathlib import Path

from tools.reference.table import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def main() -> None:
    """Say which pages changed."""
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(FOLDER.parents[1])}")  # noqa: T201 - what a person who calls it wants to know


if __name__ == "__main__":
    main()
