from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.config import ConfigError, load_config
from remediator.fleet.topology_file import TopologyError, load_topology
from remediator.model.node_location import NodeLocation


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    return path


def test_names_ranges_and_patterns_add_up(tmp_path: Path) -> None:
    text = """
nodes:
  "*": {image: jammy-3, driver: "570.86"}
  gpu[008-010]: {rack: r1, partitions: train}
  gpu009: {switch: leaf2, image: jammy-4, partitions: [train, debug]}
"""
    found = load_topology(write(tmp_path, text)).of(["gpu010", "login"])
    assert found["gpu008"] == NodeLocation(rack="r1", image="jammy-3", driver="570.86", partitions=("train",))
    assert found["gpu009"] == NodeLocation("r1", "leaf2", "jammy-4", "570.86", ("train", "debug"))
    assert found["login"] == NodeLocation(image="jammy-3", driver="570.86")
    assert set(found) == {"gpu008", "gpu009", "gpu010", "login"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: {a: {rak: 1}}", "unknown field `rak`"),
        ("nodes: {a: {rack: 1}}", "nodes: a: Expected `str`, got `int`"),
        ("nodes: {a: r1}", "Expected `object`"),
        ("nodes: {1: {rack: r}}", "1 is not a string; put it in quotes"),
        ("nodes: {'n[9-2]': {rack: r}}", "from the smaller number to the larger"),
        ("nodes: {'n[1-999999999]': {rack: r}}", "at most 100000"),
        ("racks: {}", "write 'nodes:'"),
        ("nodes: [", "while parsing"),
    ],
)
def test_a_mistake_is_named_at_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TopologyError) as error:
        load_topology(write(tmp_path, text))
    assert "topology.yaml" in str(error.value)
    assert says in str(error.value)


def test_a_wrong_file_stops_the_centre_before_it_starts(tmp_path: Path) -> None:
    config = tmp_path / "r.yaml"
    config.write_text(f"topology: {write(tmp_path, 'nodes: 3')}")
    with pytest.raises(ConfigError, match=r"topology: .*write 'nodes:'"):
        load_config(config)
    with pytest.raises(TopologyError, match="cannot be read"):
        load_topology(tmp_path / "none.yaml")


@given(st.binary(max_size=200))
def test_whatever_the_file_holds_the_answer_is_a_topology_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.yaml"
    path.write_bytes(text)
    with contextlib.suppress(TopologyError):  # nothing else
        load_topology(path).of(["n1"])
