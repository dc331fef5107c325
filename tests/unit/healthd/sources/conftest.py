"""A fake machine: a folder that stands for /, filled from the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from healthd.collectors.machine_access import MachineAccess

Build = Callable[[Mapping[str, str]], MachineAccess]


@pytest.fixture
def machine(tmp_path: Path) -> Build:
    """``machine({"/proc/…": text})``: these files are there, and nothing else."""

    def build(files: Mapping[str, str]) -> MachineAccess:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return MachineAccess(str(tmp_path))

    return build
