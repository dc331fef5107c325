"""One rank in this process, which has no neighbour; the ring itself is in tests/e2e/test_checkpoint_peers.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def state_of(model: nn.Module, **shared: Counters) -> TrainingState:
    return TrainingState(model, torch.optim.AdamW(model.parameters(), lr=0.1), **shared)


def test_what_is_held_comes_back_and_only_the_newest_is_held(tmp_path: Path) -> None:
    model, counters = nn.Linear(4, 4), Counters(seen=1)
    kept = model.weight.detach().clone()
    copies = PeerCopies(tmp_path / "m", state_of(model, counters=counters))
    assert copies.load() == 0
    for step in (3, 4):
        copies.save(step)
        assert copies.wait() == str(tmp_path / "m")
    with torch.no_grad():
        model.weight.zero_()
    counters["seen"] = 9
    copies.close()

    assert copies.load(newer_than=4) == 0
    assert copies.load(newer_than=3) == 5
    assert torch.equal(model.weight, kept)
    assert counters == {"seen": 1}
    assert len(list((tmp_path / "m").iterdir())) == 1
    assert copies.last is not None
    assert (copies.last.step, copies.last.bytes_linked) == (4, 0)


def test_memory_is_taken_where_it_is_as_new_as_the_disk(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    state = state_of(model)
    copies = PeerCopies(tmp_path / "m", state)
    with TrainingCheckpoints(tmp_path / "c", state) as checkpoints:
        assert checkpoints.load_latest(copies) == 0
        copies.save(3)
        assert checkpoints.load_latest(copies) == 4
        checkpoints.save(7)
        with torch.no_grad():
            kept = model.weight.detach().clone()
            model.weight.zero_()
        assert checkpoints.load_latest(copies) == 8
        assert torch.equal(model.weight, kept)
    copies.close()


def test_no_room_in_memory_is_said_at_the_next_save(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / ".own-0").symlink_to("/dev/full")
    copies = PeerCopies(tmp_path / "m", state_of(nn.Linear(512, 512)))

    copies.save(1)
    with pytest.raises(CheckpointError, match=r"step 1 is not held in memory: \[Errno 28\] No space left"):
        copies.save(2)
    copies.close()


def test_another_state_is_refused_by_name(tmp_path: Path) -> None:
    copies = PeerCopies(tmp_path, state_of(nn.Linear(4, 4)))
    copies.save(1)
    copies.close()

    with pytest.raises(CheckpointError, match=r"does not fit this state: .*counters"):
        PeerCopies(tmp_path, state_of(nn.Linear(4, 4), counters=Counters())).load()
    with pytest.raises(CheckpointError, match=r"does not fit this state: .*\(3, 3\) here, \(4, 4\) saved"):
        PeerCopies(tmp_path, state_of(nn.Linear(3, 3))).load()


def test_who_goes_back_forgets_what_is_in_memory_too(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    state = state_of(model)
    copies = PeerCopies(tmp_path / "m", state)
    with TrainingCheckpoints(tmp_path / "c", state) as checkpoints:
        for step in (3, 6):
            checkpoints.save(step)
        copies.save(7)
        copies.wait()
        checkpoints.go_back(5)

        assert checkpoints.load_latest(copies) == 4
        assert checkpoints.load_latest(copies) == 4
        checkpoints.save(6)
        assert checkpoints.load_latest(copies) == 7


class Remembering(nn.Linear):
    """Its extra state is no tensor."""

    seen = np.zeros(3)

    def get_extra_state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def test_what_a_module_keeps_beside_its_tensors_comes_back_from_memory(tmp_path: Path) -> None:
    model = Remembering(2, 2)
    model.seen = np.ones(3)
    copies = PeerCopies(tmp_path / "m", state_of(model))
    copies.save(3)
    copies.close()

    fresh = Remembering(2, 2)
    assert PeerCopies(tmp_path / "m", state_of(fresh)).load() == 4
    assert fresh.seen.tolist() == [1, 1, 1]
