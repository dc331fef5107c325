"""What tests of the NVML child and its collectors share: a fake driver library that reads a scenario."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BUILD = Path(__file__).parents[2] / "nodes" / "fake_nvml" / "build.py"


@pytest.fixture(scope="session")
def fake_nvml() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fake_nvml_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def library(fake_nvml: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = fake_nvml.build(tmp_path_factory.mktemp("nvml"))
    assert fake_nvml.build(path.parents[1]) == path, "built once"
    return path


@pytest.fixture
def gpus(fake_nvml: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``gpus("gpus 2", "hang 1")``: from now on the driver has these. At first it has two, which are well."""
    scenario = tmp_path / "scenario"
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(scenario))

    def write(*lines: str) -> None:
        fake_nvml.write_scenario(scenario, lines)

    write("gpus 2")
    return write
