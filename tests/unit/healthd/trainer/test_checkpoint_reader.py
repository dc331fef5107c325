"""Reading a checkpoint while it is verified: every tensor comes back, and nothing of a damaged file is used."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from healthd.trainer.adapters import pytorch_file_reader
from healthd.trainer.adapters.pytorch import TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_file_reader import LateUnpickling, PlainReader
from healthd.trainer.adapters.pytorch_file_writer import MeasuredWriter
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError, FileWriter

pytestmark = pytest.mark.torch

TENSORS = {
    "float": torch.randn(64, 32),
    "bfloat16": torch.randn(7, 3).to(torch.bfloat16),
    "float8": torch.randn(16).to(torch.float8_e4m3fn),
    "whole": torch.arange(11),
    "flags": torch.arange(9) % 2 == 0,
    "single": torch.tensor(3.5),
    "complex": torch.randn(4, dtype=torch.complex64),
    "turned": torch.randn(8, 6).t(),
    "part": torch.randn(10, 10)[2:5, 3:7],
    "none": torch.empty(0, 4),
    "byte": torch.tensor([165], dtype=torch.uint8),
    "marks": torch.full((64,), 165, dtype=torch.uint8),
}
PLAIN = {"float", "bfloat16", "float8", "whole", "flags", "single", "marks"}


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("file_per_tensor", [False, True])
def test_every_tensor_comes_back_and_contiguous_ones_without_torch_load(
    file_per_tensor: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = MeasuredWriter(tmp_path, FileWriter(tmp_path), file_per_tensor=file_per_tensor)
    dcp.save(dict(TENSORS), storage_writer=writer)
    loaded: list[str] = []
    read = PlainReader._read_plain

    def noted(self: PlainReader, descriptor: int, item: Any, planner: Any) -> bool:
        done = read(self, descriptor, item, planner)
        loaded.extend([item.storage_index.fqn] * done)
        return done

    monkeypatch.setattr(PlainReader, "_read_plain", noted)
    targets = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    dcp.load(targets, storage_reader=PlainReader(tmp_path))
    assert {name: bytes_of(each) for name, each in targets.items()} == {n: bytes_of(t) for n, t in TENSORS.items()}
    assert set(loaded) >= PLAIN

    turned = {"float": torch.zeros(32, 64).t(), "whole": torch.zeros(11)}  # another layout, another type
    dcp.load(turned, storage_reader=PlainReader(tmp_path))
    assert torch.equal(turned["float"], TENSORS["float"])
    assert torch.equal(turned["whole"], TENSORS["whole"].float())


class Witness:
    """A shared object; its state tells when somebody unpickles it."""

    unpickled: list[float] = []  # noqa: RUF012 - of the test

    def __init__(self, value: float) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"told": Told(self.value)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["told"].value


class Told:
    def __init__(self, value: float) -> None:
        self.value = value

    def __setstate__(self, state: dict[str, float]) -> None:
        Witness.unpickled.append(state["value"])
        self.__dict__ = state


def two_checkpoints(root: Path) -> tuple[nn.Module, TrainingCheckpoints, Path]:
    """Of value 1, and of value 2, the newest."""
    model, witness = nn.Linear(64, 64), Witness(1.0)
    state = TrainingState(model, torch.optim.SGD(model.parameters()), witness=witness)
    checkpoints = TrainingCheckpoints(root, state)
    for value in (1.0, 2.0):
        witness.value = value
        with torch.no_grad():
            for each in model.parameters():
                each.fill_(value)
        newest = checkpoints.save(int(value))
    return model, checkpoints, Path(newest) / "__0_0.distcp"


def values_of(model: nn.Module) -> set[float]:
    return {value for each in model.parameters() for value in each.unique().tolist()}


def test_nothing_of_a_damaged_file_is_unpickled_and_nothing_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, checkpoints, file = two_checkpoints(tmp_path)
    late: list[int] = []
    unpickle = LateUnpickling.unpickle

    def noted(self: LateUnpickling) -> None:
        late.append(len(self._kept))
        unpickle(self)

    monkeypatch.setattr(LateUnpickling, "unpickle", noted)
    content = bytearray(file.read_bytes())
    at = content.index(torch.full((64,), 2.0).numpy().tobytes())
    content[at] ^= 1
    file.write_bytes(content)
    Witness.unpickled.clear()
    assert checkpoints.load_latest() == 2
    assert values_of(model) == {1.0}
    assert set(Witness.unpickled) == {1.0}
    assert len(late) == 1
    assert late[0] > 0
    checkpoints.close()


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError(5, "Input/output error")])
def test_damage_that_looks_like_a_lack_of_memory_is_damage(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, checkpoints, file = two_checkpoints(tmp_path)
    intact = file.read_bytes()
    read = PlainReader.read_data

    def fails_for_newest(self: PlainReader, plan: Any, planner: Any) -> Any:
        if file.parent == Path(self.path):
            raise error
        return read(self, plan, planner)

    monkeypatch.setattr(PlainReader, "read_data", fails_for_newest)
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoints.load_latest()
    file.write_bytes(intact[:-1] + bytes([intact[-1] ^ 255]))
    with caplog.at_level(logging.WARNING):
        assert checkpoints.load_latest() == 2
    assert "checksum does not match" in caplog.text
    assert values_of(model) == {1.0}
    checkpoints.close()


def test_metadata_is_verified_before_it_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, checkpoints, file = two_checkpoints(tmp_path)
    metadata = file.with_name(pytorch_file_reader.METADATA)
    metadata.write_bytes(metadata.read_bytes()[:-2] + b"..")
    opened: list[Path] = []
    read = PlainReader.read_metadata

    def noted(self: PlainReader, *args: Any, **kwargs: Any) -> Any:
        opened.append(Path(self.path))
        return read(self, *args, **kwargs)

    monkeypatch.setattr(PlainReader, "read_metadata", noted)
    assert checkpoints.load_latest() == 2
    assert file.parent not in opened
    checkpoints.close()


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_bytes_are_damaged_the_older_one_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[float, int]]
) -> None:
    model, checkpoints, file = two_checkpoints(tmp_path_factory.mktemp("c"))
    intact = file.read_bytes()
    content = bytearray(intact)
    for where, what in damage:
        content[int(where * len(content))] ^= what
    file.write_bytes(content)
    Witness.unpickled.clear()
    begin = checkpoints.load_latest()
    good = 2.0 if content == intact else 1.0
    assert (begin, values_of(model), set(Witness.unpickled)) == (good + 1, {good}, {good})
    checkpoints.close()


def test_a_witness_is_a_pickle_of_its_own() -> None:
    Witness.unpickled.clear()
    pickle.loads(pickle.dumps(Told(5.0)))  # noqa: S301 - our own
    assert Witness.unpickled == [5.0]
