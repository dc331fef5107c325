"""The driver's library played in C, for tests of what is asked of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[3] / "nodes" / "fake_nvml" / "build.py"


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Callable[[str], list[str]]]:
    spec = importlib.util.spec_from_file_location("fake_nvml_build", BUILD)
    assert spec
    assert spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return str(build.build(tmp_path_factory.mktemp("nvml"))), build.preset


@pytest.fixture
def driver_says(
    nvml: tuple[str, Callable[[str], list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[str]], None]:
    """``driver_says(lines)``: from now on the driver is that of eight H200, and `lines` change what it says."""
    library, preset = nvml
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", library)
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(tmp_path / "scenario"))

    def say(lines: Sequence[str]) -> None:
        aside = tmp_path / "scenario.new"
        aside.write_text("\n".join([*preset("h200x8"), *lines, ""]))
        aside.replace(tmp_path / "scenario")

    say(())
    return say
