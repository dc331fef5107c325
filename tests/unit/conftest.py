"""What every unit test may use: golden files that are compared, or rewritten with ``GOLDEN=update``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """``golden(name, text)``: `text` must equal the file ``tests/golden/name``."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("GOLDEN") == "update":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs; if the change is meant, run again with GOLDEN=update"

    return check
