"""``python -m tools.reference``: regenerate every page."""

from __future__ import annotations

from pathlib import Path

from tools.reference.table import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def main() -> None:
    """Write the pages that changed and print their names."""
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(FOLDER.parents[1])}")  # noqa: T201 - the output of this command


if __name__ == "__main__":
    main()
