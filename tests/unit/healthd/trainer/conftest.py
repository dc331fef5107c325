"""What tests of adapters share: a process group of one rank, and the page of that rank."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.beacon_directory import prepare_directory


@pytest.fixture
def group() -> Iterator[None]:
    dist = pytest.importorskip("torch.distributed")  # in here, for the tests that do without
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def beacon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beacon]:
    # A guard that leaves starts a timer that would end this test process.
    monkeypatch.setattr("healthd.trainer.process_exit.ExitGuard.leave_within", lambda *_: None)
    prepare_directory(str(tmp_path / "beacons"))
    made = Beacon.create(str(tmp_path / "beacons"), RankPlacement("job", 0, 0, 1, node="here"))
    yield made
    for thread in threading.enumerate():
        if thread.name == "healthd-guard":
            thread.join()
    made.close()
