from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks' pages: of this test only."""
    monkeypatch.setenv("HEALTHD_BEACON_DIR", str(tmp_path / "beacons"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
