"""What tests of the node daemon share: a fake driver library that reads a scenario, a local door, a node that records."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from healthd.http_server.http_responder import ConnectionLimits
from tests.unit.healthd.http_server_fixture import FOREVER, Door
from tests.unit.healthd.recording_node import LONG_S, Node

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


@pytest.fixture
def make_door(tmp_path: Path) -> Iterator[Callable[..., Door]]:
    """Local doors, closed at the end of the test."""
    with contextlib.ExitStack() as made:

        def make(limits: ConnectionLimits = FOREVER, place: Path = tmp_path) -> Door:
            door = Door(place, limits)
            made.callback(door.server.close)
            return door

        yield make


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with a database, and nothing waiting for the disk."""
    node = Node(tmp_path / "healthd.db")
    node.settle_all()
    yield node
    node.let_go()
    assert node.committer.close(LONG_S)
