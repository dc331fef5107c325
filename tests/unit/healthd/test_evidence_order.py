"""The order to hand over evidence: kept, sent, sent again, given up; and what the node's disk holds of it."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from healthd.controller import controller_client
from healthd.controller.controller_client import ControllerError, ControllerUnreachable, RequestRejected
from healthd.orders.evidence_files import EvidenceFiles
from healthd.orders.evidence_order import EvidenceTask
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.wire import decode_message
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

NOW = 1_700_000_000.0
DEADLINE_S = 90.0


def order(**more: object) -> Order:
    base: dict[str, object] = {"id": "o1", "node": "n1", "issued_at": NOW, "expires_at": NOW + 60}
    return Order(kind=OrderKind.COLLECT_EVIDENCE, incident="i", reason="r", **(base | more))  # type: ignore[arg-type]  # by name


def collected(each: Order) -> EvidenceBundle:
    return EvidenceBundle(version=1, node="n1", boot_id="b", taken_at=NOW, from_at=NOW - 900, order=each.id)


class Scripted:
    """A controller that answers as told: with an error, or by taking the bundle."""

    def __init__(self, *answers: ControllerError | None) -> None:
        self.answers = list(answers)
        self.taken: list[bytes] = []
        self.closed = False

    def evidence(self, order: str, content: bytes) -> None:
        assert order == "o1"
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.taken.append(content)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def files(tmp_path: Path) -> EvidenceFiles:
    return EvidenceFiles(tmp_path / "evidence")


@pytest.fixture
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKOFF_S_MIN", "BACKOFF_S_MAX", "DENIED_S"):
        monkeypatch.setattr(controller_client, name, 0.001)


def perform(task: EvidenceTask, now: float = NOW) -> OrderUpdate:
    """Step it until it says something final."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        update = task.step(now)
        if update is not None and update.state.final:
            return update
        time.sleep(0.005)
    raise AssertionError("it did not end")


def test_it_is_kept_on_the_node_and_taken_by_the_centre(files: EvidenceFiles) -> None:
    receiver = Scripted()
    update = perform(EvidenceTask(order(), files, collected, lambda: receiver))
    assert update.state is OrderState.SUCCEEDED
    assert receiver.taken == [files.read("o1")]
    assert decode_message(gzip.decompress(receiver.taken[0]), EvidenceBundle).order == "o1"
    assert update.data["bytes"] == len(receiver.taken[0])
    assert update.data["file"] == str(files.path("o1"))
    assert receiver.closed


def test_an_outage_is_waited_out(files: EvidenceFiles, in_no_time: None) -> None:
    receiver = Scripted(
        ControllerUnreachable("down"), ControllerUnreachable("down"), controller_client.ControllerDenied("wrong token")
    )
    assert perform(EvidenceTask(order(), files, collected, lambda: receiver)).state is OrderState.SUCCEEDED
    assert len(receiver.taken) == 1


def test_what_the_centre_does_not_want_fails_with_its_words(files: EvidenceFiles) -> None:
    update = perform(EvidenceTask(order(), files, collected, lambda: Scripted(RequestRejected("404: no such order"))))
    assert (update.state, "no such order" in update.detail) == (OrderState.FAILED, True)
    assert files.read("o1"), "a person can still have it"


def test_it_is_given_up_when_the_order_expires_and_says_what_was_in_the_way(
    files: EvidenceFiles, in_no_time: None
) -> None:
    receiver = Scripted(*[ControllerUnreachable("the centre is down")] * 1_000_000)
    task = EvidenceTask(order(), files, collected, lambda: receiver)
    assert task.step(NOW) is not None
    deadline = time.monotonic() + DEADLINE_S
    while len(receiver.answers) > 999_990 and time.monotonic() < deadline:
        assert task.step(NOW) is None
    update = task.step(NOW + 60)
    assert update is not None
    assert (update.state, "the centre is down" in update.detail) == (OrderState.EXPIRED, True)
    while not receiver.closed and time.monotonic() < deadline:
        time.sleep(0.005)
    assert receiver.closed, "it tries no more"


def test_a_restart_sends_what_was_collected_then(files: EvidenceFiles) -> None:
    before = Scripted(*[ControllerUnreachable("down")] * 1000)
    task = EvidenceTask(order(), files, collected, lambda: before)
    task.step(NOW)
    deadline = time.monotonic() + DEADLINE_S
    while (kept := files.read("o1")) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    task.close()
    after = Scripted()

    def never(_: Order) -> EvidenceBundle:
        raise AssertionError("the minutes before the fault are gone by now")

    assert perform(EvidenceTask(order(), files, never, lambda: after)).state is OrderState.SUCCEEDED
    assert after.taken == [kept]


def test_a_full_disk_does_not_keep_it_from_the_centre(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("in the way of the folder")
    receiver = Scripted()
    update = perform(EvidenceTask(order(), EvidenceFiles(tmp_path / "evidence"), collected, lambda: receiver))
    assert update.state is OrderState.SUCCEEDED
    assert "file" not in update.data
    assert len(receiver.taken) == 1


def test_a_mistake_of_ours_ends_as_a_failed_order(files: EvidenceFiles) -> None:
    def broken(_: Order) -> EvidenceBundle:
        raise ZeroDivisionError

    update = perform(EvidenceTask(order(), files, broken, Scripted))
    assert (update.state, "ZeroDivisionError" in update.detail) == (OrderState.FAILED, True)


@pytest.mark.parametrize(("files_max", "bytes_max", "kept"), [(5, 1 << 20, 5), (100, 4000, 3), (100, 10, 1)])
def test_the_disk_holds_the_newest_files_only(tmp_path: Path, files_max: int, bytes_max: int, kept: int) -> None:
    files = EvidenceFiles(tmp_path, files_max, bytes_max)
    for number in range(10):
        files.write(f"o{number}", gzip.compress(os.urandom(1000)))
        os.utime(files.path(f"o{number}"), (number, number))
    assert [number for number in range(10) if files.read(f"o{number}")] == list(range(10 - kept, 10))


@pytest.mark.parametrize("damage", [lambda b: b[:-4], lambda _: b"", lambda b: b[:20] + b"xx" + b[22:]])
def test_a_damaged_file_is_none(files: EvidenceFiles, damage: Callable[[bytes], bytes]) -> None:
    files.write("o1", gzip.compress(b"x" * 100_000 + os.urandom(100)))
    files.path("o1").write_bytes(damage(files.path("o1").read_bytes()))
    assert files.read("o1") is None
