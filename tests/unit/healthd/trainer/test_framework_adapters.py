"""The adapters' own parts, without two processes: which step opens and closes when, what is the newest checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from healthd.trainer.adapters.deepspeed import GuardedEngine
from healthd.trainer.adapters.process_group import guard_of_group
from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_page
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import MailboxOrder, OrderOutcome, Phase
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.checkpoint_storage.abandoned_checkpoints import mark_too_new
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import GRACEFUL, REVERT, Guard

pytestmark = pytest.mark.torch
PLACE = RankPlacement("job", 0, 0, 1, node="here")


class Engine:
    """The part of a DeepSpeed engine that the wrapper touches, as DeepSpeed 0.19 documents it."""

    def __init__(self, window: int = 2) -> None:
        self.window, self.micro, self.global_steps, self.training = window, 0, 0, True
        self.full = False
        self.tags: list[tuple[str, bool]] = []

    def __call__(self, x: int) -> int:
        return x + 1

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro + 1) % self.window == 0

    def step(self) -> None:
        self.global_steps += self.is_gradient_accumulation_boundary()
        self.micro += 1

    def save_checkpoint(self, directory: str, *, tag: str, client_state: dict[str, Any], save_latest: bool) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        (Path(directory) / tag).mkdir(parents=True)
        (Path(directory) / tag / "state").write_text(str(client_state))
        self.tags.append((tag, save_latest))

    def load_checkpoint(self, directory: str) -> tuple[str, dict[str, Any]]:
        return directory, {"from": (Path(directory) / "latest").read_text()}


def guarded(engine: Engine, beacon: Beacon, directory: Path) -> GuardedEngine:
    def guard() -> Guard:
        return Guard(PLACE, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0)

    return GuardedEngine(engine, directory, make_guard=guard, client_state=lambda: {"seen": 7})


def train(engine: GuardedEngine, steps: int) -> None:
    for _ in range(steps * 2):
        engine(1)
        engine.step()


def order(beacon: Beacon) -> None:
    post_order(beacon.path, MailboxOrder("o1", GRACEFUL, "a test", ("here",), time.time() + 60))


def test_a_guard_step_is_an_accumulation_window(group: None, beacon: Beacon, tmp_path: Path) -> None:
    raw = Engine()
    with guarded(raw, beacon, tmp_path / "c") as engine:
        train(engine, 3)
        raw.training = False
        engine(1)  # an evaluation is no step
        assert engine.window == 2  # what is not the wrapper's is the engine's
        assert engine.load_latest() is None
    state = read_page(beacon.path).state
    assert (state.completed, state.step, state.phase) == (3, 2, Phase.DONE)


def test_ordered_it_saves_at_the_end_of_the_window_and_leaves(group: None, beacon: Beacon, tmp_path: Path) -> None:
    raw, directory = Engine(), tmp_path / "c"

    def run() -> None:
        with guarded(raw, beacon, directory) as engine:
            train(engine, 1)
            order(beacon)
            train(engine, 9)

    with pytest.raises(Leave) as left:
        run()
    assert left.value.code == ExitCode.CONDEMNED
    assert raw.tags == [("global_step3", False)]  # `latest` is ours to write, when everybody is done
    assert (directory / "latest").read_text() == "global_step3"
    assert (directory / "global_step3" / "state").read_text() == "{'seen': 7}"
    answer = read_page(beacon.path).acknowledgement
    assert answer is not None
    assert (answer.outcome, answer.agreed_step) == (OrderOutcome.LEFT, 2)
    assert GuardedEngine(Engine(), directory).load_latest() == {"from": "global_step3"}


def test_told_to_go_back_it_loads_from_before_and_sets_the_rest_aside(
    group: None, beacon: Beacon, tmp_path: Path
) -> None:
    directory = tmp_path / "c"

    def run() -> None:
        with guarded(Engine(), beacon, directory) as engine:
            for _ in range(4):
                train(engine, 1)
                engine.save()
            post_order(beacon.path, MailboxOrder("o1", REVERT, "a test", (), time.time() + 60, before_step=2))
            train(engine, 9)

    with pytest.raises(Leave) as left:
        run()

    assert left.value.code == ExitCode.RELAUNCH
    assert (directory / "latest").read_text() == "global_step4"
    for _ in range(2):
        assert GuardedEngine(Engine(), directory).load_latest() == {"from": "global_step2"}
    assert sorted(path.name for path in directory.iterdir()) == [
        "abandoned-global_step3",
        "abandoned-global_step4",
        "global_step1",
        "global_step2",
        "latest",
    ]


def test_a_save_that_fails_leaves_latest_alone(group: None, beacon: Beacon, tmp_path: Path) -> None:
    raw, directory = Engine(), tmp_path / "c"

    def run() -> None:
        with guarded(raw, beacon, directory) as engine:
            train(engine, 1)
            engine.save()
            raw.full = True
            order(beacon)
            train(engine, 9)

    with pytest.raises(Leave) as left:
        run()
    assert left.value.code == ExitCode.ABORTED
    assert (directory / "latest").read_text() == "global_step1"


@pytest.mark.parametrize("attempt", ["HEALTHD_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"])
def test_the_group_says_who_we_are(group: None, tmp_path: Path, attempt: str) -> None:
    prepare_directory(str(tmp_path / "beacons"))
    environ = {"HEALTHD_BEACON_DIR": str(tmp_path / "beacons"), "HEALTHD_JOB": "job", attempt: "3", "RANK": "5"}
    with guard_of_group(environ):
        assert [path.name for path in (tmp_path / "beacons").glob("*.beacon")] == ["job.3.0.beacon"]


def test_without_a_group_it_is_a_job_of_one(tmp_path: Path) -> None:
    prepare_directory(str(tmp_path / "beacons"))
    with guard_of_group({"HEALTHD_BEACON_DIR": str(tmp_path / "beacons")}):
        assert [path.name for path in (tmp_path / "beacons").glob("*.beacon")] == ["job.0.0.beacon"]


def test_hugging_faces_newest_is_the_newest_that_all_ranks_finished(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from healthd.trainer.adapters.huggingface import COMPLETE, latest_checkpoint  # noqa: PLC0415 - may not be there

    assert latest_checkpoint(tmp_path / "nothing") is None
    for step in (9, 10, 11):
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert latest_checkpoint(tmp_path) == str(
        tmp_path / "checkpoint-11"
    )  # older than the callback: as transformers does
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}" / COMPLETE).touch()
    assert latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_hugging_faces_newest_after_going_back_is_the_newest_from_before(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from healthd.trainer.adapters.huggingface import COMPLETE, latest_checkpoint  # noqa: PLC0415 - may not be there

    for step in (8, 9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / COMPLETE).touch()
    mark_too_new(tmp_path, 9)
    assert latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-9")
    mark_too_new(tmp_path, 1)
    assert latest_checkpoint(tmp_path) is None


def test_lightnings_newest_is_the_newest_with_its_final_name(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from healthd.trainer.adapters.lightning import latest_checkpoint  # noqa: PLC0415 - may not be there

    assert latest_checkpoint(tmp_path / "nothing") is None
    for name in ("step-000000009.ckpt", "step-1000000000.ckpt", ".step-2000000000.ckpt.tmp", "step-last.ckpt"):
        (tmp_path / name).touch()
    assert latest_checkpoint(tmp_path) == str(tmp_path / "step-1000000000.ckpt")
