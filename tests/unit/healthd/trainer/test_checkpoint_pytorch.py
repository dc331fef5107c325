"""One rank in this process: what is saved, what comes back, and how failures surface."""

from __future__ import annotations

import logging
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_host_copy import HostCopy, iterate_leaves
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError, FileEntry, read_manifest
from healthd.trainer.checkpoint_storage.checksums import Checksum

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network(value: float = 0.0) -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 256))
    set_to(model, value)
    return model


def set_to(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def value_of(model: nn.Module) -> set[float]:
    return {value for parameter in model.parameters() for value in parameter.unique().tolist()}


def checkpoints_of(root: Path, model: nn.Module, **options: Any) -> TrainingCheckpoints:
    return TrainingCheckpoints(root, model, torch.optim.AdamW(model.parameters(), lr=0.1), **options)


def test_training_goes_on_and_the_copy_stays_as_it_was(tmp_path: Path) -> None:
    model = network(1.0)
    checkpoints = checkpoints_of(tmp_path, model)
    assert checkpoints.wait() == ""

    checkpoints.save_async(7)
    set_to(model, 2.0)
    path = checkpoints.wait()

    assert path == str(tmp_path / "step-000000007")
    assert checkpoints.idle
    assert checkpoints.last is not None
    assert checkpoints.last.step == 7
    assert checkpoints.last.bytes_written == sum(f.bytes for f in read_manifest(Path(path)).files.values())
    fresh = network()
    assert checkpoints_of(tmp_path, fresh).load_latest() == 8
    assert value_of(fresh) == {1.0}
    checkpoints.close()


def test_a_checkpoint_from_before_blake3_is_loaded(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[3] / "golden" / "healthd" / "checkpoint-sha256", tmp_path / "c")
    model = nn.Linear(2, 1)
    with TrainingCheckpoints(tmp_path / "c", model) as checkpoints:
        assert checkpoints.load_latest() == 8
        checkpoints.save(8)
    assert (model.weight.tolist(), model.bias.tolist()) == ([[3.0, 3.0]], [0.5])
    named = [entry.checksum.algorithm for entry in read_manifest(tmp_path / "c" / "step-000000008").files.values()]
    assert named == ["blake3", "blake3"]


def test_a_checkpoint_that_cannot_be_verified_here_stops_the_job_and_stays_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(1.0)
    with checkpoints_of(tmp_path, model) as checkpoints:
        checkpoints.save(1)
        checkpoints.save(2)
    monkeypatch.setitem(sys.modules, "blake3", None)
    checkpoints = checkpoints_of(tmp_path, model)
    with pytest.raises(CheckpointError, match=r"step-000000002: checksums are blake3.*pip install blake3"):
        checkpoints.load_latest()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["step-000000001", "step-000000002"]


def test_a_failure_behind_trainings_back_surfaces_at_the_next_save_and_at_close(tmp_path: Path) -> None:
    root = tmp_path / "c"
    checkpoints = checkpoints_of(root, network())
    checkpoints.save(1)
    shutil.rmtree(root)
    root.write_text("not a directory")

    checkpoints.save_async(2)
    with pytest.raises(CheckpointError, match=r"step 2 was not saved.*File exists"):
        checkpoints.save_async(3)
    checkpoints.save_async(4)
    with pytest.raises(CheckpointError, match="step 4 was not saved"):
        checkpoints.close()


def test_the_save_an_order_needs_makes_up_for_a_failed_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "c"
    root.write_text("not a directory")
    with checkpoints_of(root, network()) as checkpoints:
        checkpoints.save_async(2)
        while not checkpoints.idle:
            pass
        root.unlink()
        with caplog.at_level(logging.ERROR):
            assert checkpoints.save(3) == str(root / "step-000000003")
    assert "the save before this one failed: step 2 was not saved" in caplog.text


def test_an_order_to_save_waits_for_the_one_under_way_and_for_its_own(tmp_path: Path) -> None:
    model = network(1.0)
    with checkpoints_of(tmp_path, model) as checkpoints:
        checkpoints.save_async(5)
        set_to(model, 2.0)
        path = checkpoints.save(6)
        assert checkpoints.idle
    assert sorted(each.name for each in tmp_path.iterdir()) == ["step-000000005", "step-000000006"]
    assert path.endswith("step-000000006")
    assert checkpoints.wait() == path


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "bytes, the manifest says"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"\xff"), "checksum does not match the manifest"),
        (lambda file: file.unlink(), "missing"),
    ],
)
@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata"])
def test_the_one_before_is_loaded_where_the_newest_is_damaged(
    damage: Any, said: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = network(1.0)
    checkpoints = checkpoints_of(tmp_path, model)
    checkpoints.save(1)
    set_to(model, 2.0)
    damage(Path(checkpoints.save(2)) / name)

    with caplog.at_level(logging.WARNING):
        assert checkpoints.load_latest() == 2

    assert value_of(model) == {1.0}
    assert said in caplog.text
    assert "falling back from step-000000002 to step-000000001" in caplog.text


def test_every_random_generator_comes_back(tmp_path: Path) -> None:
    def draw() -> tuple[float, ...]:
        return random.gauss(0, 1), np.random.random(), torch.rand(()).item(), own_draw()  # noqa: NPY002 - the global one has to come back

    def own_draw() -> float:
        return torch.rand((), generator=own).item()

    own, model = torch.Generator().manual_seed(1), network()
    state = TrainingState(model, per_rank={"own": own})
    random.gauss(0, 1)  # leaves a second one behind, which is state as well
    with TrainingCheckpoints(tmp_path, state) as checkpoints:
        checkpoints.save(0)
        expected = draw()
        assert draw() != expected
        assert checkpoints.load_latest() == 1
        assert draw() == expected


def test_what_a_checkpoint_does_not_hold_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    TrainingCheckpoints(tmp_path, TrainingState(model, counters=Counters(seen=3), ema=network(5.0))).save(1)

    with pytest.raises(CheckpointError, match="does not fit this state: holds no scaler"):
        TrainingCheckpoints(tmp_path, TrainingState(model, scaler=Counters(), ema=network())).load_latest()
    ema = network()
    with caplog.at_level(logging.WARNING):
        assert TrainingCheckpoints(tmp_path, TrainingState(model, ema=ema)).load_latest() == 2
    assert "also contains counters, which this job does not use" in caplog.text
    assert value_of(ema) == {5.0}


def test_another_model_is_refused(tmp_path: Path) -> None:
    checkpoints_of(tmp_path, network()).save(1)

    with pytest.raises(CheckpointError, match="does not fit this state"):
        checkpoints_of(tmp_path, nn.Linear(3, 3)).load_latest()


def test_frozen_tensors_are_linked_and_trained_ones_written(tmp_path: Path) -> None:
    model = network(1.0)
    model[0].requires_grad_(requires_grad=False)
    model[0].weight.data = torch.randn(256, 64)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    state = TrainingState(model, torch.optim.AdamW(trained, lr=0.1))
    with TrainingCheckpoints(tmp_path, state, keep=3, incremental=True) as checkpoints:
        checkpoints.save(1)
        assert checkpoints.last is not None
        assert checkpoints.last.bytes_linked == 0
        set_to(model[1], 2.0)
        checkpoints.save_async(2)
        checkpoints.wait()
        assert checkpoints.last.bytes_linked > 256 * 64 * 4
        assert checkpoints.last.bytes_written > model[1].weight.nbytes
        set_to(model, 0.0)
        assert checkpoints.load_latest() == 3
    assert value_of(model[1]) == {2.0}
    assert len(value_of(model[0])) > 1000


def test_a_host_copy_uses_its_buffers_again_and_follows_a_change_of_shape() -> None:
    host = HostCopy()
    first = host.take({"a": torch.ones(2), "b": [torch.zeros(1), "text"], "c": {"d": (0.9, 3)}})
    second = host.take({"a": torch.full((2,), 5.0), "b": [torch.ones(3), "other"], "c": {"d": (0.9, 4)}})

    assert second["a"] is first["a"]
    assert second["a"].tolist() == [5.0, 5.0]
    assert [path for path, _ in iterate_leaves(second)] == [("a",), ("b", 0), ("b", 1), ("c", "d")]
    assert second["c"]["d"] == (0.9, 4)
    assert second["b"][0].tolist() == [1.0, 1.0, 1.0]


def test_a_tensor_sharded_the_old_way_is_refused_by_name() -> None:
    class Sharded:
        local_shards: tuple[torch.Tensor, ...] = ()

    with pytest.raises(TypeError, match=r"model\.weight: Sharded cannot be copied aside"):
        HostCopy().take({"model": {"weight": Sharded()}})


class Remembering(nn.Linear):
    """Its extra state is no tensor, and changes in place."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.seen = np.zeros(3)
        self.words = {"last": ["a"]}

    def get_extra_state(self) -> dict[str, Any]:
        return {"seen": self.seen, "words": self.words}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.seen, self.words = state["seen"], state["words"]


def test_what_a_module_keeps_beside_its_tensors_is_saved_as_it_was(tmp_path: Path) -> None:
    model = Remembering()
    staged = HostCopy().take(TrainingState(model).collect())["model"]
    with TrainingCheckpoints(tmp_path / "c", model) as checkpoints:
        checkpoints.save_async(1)
        model.seen += 7
        model.words["last"].append("b")
        checkpoints.wait()
        fresh = Remembering()
        assert TrainingCheckpoints(tmp_path / "c", fresh).load_latest() == 2

    [extra] = [value for name, value in staged.items() if name.endswith("_extra_state")]
    for seen, words in ((extra["seen"], extra["words"]), (fresh.seen, fresh.words)):
        assert seen.tolist() == [0, 0, 0]
        assert words == {"last": ["a"]}


def test_what_cannot_be_copied_is_refused_by_name_and_a_named_tuple_stays_one() -> None:
    with pytest.raises(TypeError, match=r"model\.lock: lock cannot be copied aside: cannot pickle"):
        HostCopy().take({"model": {"lock": threading.Lock()}})
    entry = FileEntry(3, Checksum("blake3", "x"))
    assert HostCopy().take({"a": entry})["a"] == entry
