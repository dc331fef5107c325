"""What tests of adapters share: a process group of one rank, and the page of that rank."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.step_writer import StepWriter


def import_c_writer() -> type[StepWriter]:
    """The writer in C; skips where it could not be built, but not in continuous integration, which has a compiler."""
    try:
        from healthd.trainer.beacons._step_writer import StepWriter as Fast  # noqa: PLC0415 - it may be missing
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("no writer in C: installed without a compiler")
    return Fast


@pytest.fixture(params=["python", "c"])
def step_writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[StepWriter]:
    """Each of the two writers; beacons that are made meanwhile use it."""
    writer = StepWriter if request.param == "python" else import_c_writer()
    monkeypatch.setattr("healthd.trainer.beacons.beacon.StepWriter", writer)
    return writer


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
