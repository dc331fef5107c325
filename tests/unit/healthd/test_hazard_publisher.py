from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from healthd.controller.controller_client import ControllerUnreachable, RequestRejected
from healthd.reporting.hazard_publisher import HazardPublisher
from healthd.trainer.interval.hazard_file import hazard_path, read_hazard
from vocabulary.clock import ManualClock
from vocabulary.messages.job_hazard import JobHazard


class Centre:
    """Answers what it is set to, or fails as it is set to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.per_s = 1e-4

    def hazard(self, job: str) -> JobHazard:
        if self.error is not None:
            raise self.error
        return JobHazard(job=job, attempt=0, nodes=4, per_s=self.per_s, at=0.0, valid_s=900)

    def close(self) -> None:
        """Nothing is open."""


class Node:
    """A node whose ranks are given as (job, alive)."""

    def __init__(self, place: Path) -> None:
        self.ranks: list[tuple[str, bool]] = []
        self.clock, self.centre, self.place = ManualClock(), Centre(), str(place)
        self.hazards = HazardPublisher(self.place, lambda: self.centre, self._status, self.clock)  # type: ignore[arg-type]  # only the ranks are looked at

    def _status(self) -> SimpleNamespace:
        return SimpleNamespace(ranks=[SimpleNamespace(job=job, alive=alive) for job, alive in self.ranks])

    def look(self) -> None:
        self.hazards.look(self.centre)

    def told(self, job: str) -> float | None:
        found = read_hazard(self.place, job, self.clock.wall())
        return None if found is None else found.per_s


def test_each_job_here_is_told_its_hazard_and_no_other(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.ranks = [("a/b", True), ("a/b", True), ("c", False)]
    node.look()
    assert node.told("a/b") == 1e-4
    assert not hazard_path(node.place, "c").exists()
    node.centre.per_s = 1e-2
    node.look()
    assert node.told("a/b") == 1e-2
    node.ranks = []
    node.look()
    assert list(tmp_path.iterdir()) == []


def test_without_a_centre_old_numbers_are_true_until_they_say_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.ranks = [("train", True)]
    node.look()
    node.centre.error = ControllerUnreachable("no answer")
    with caplog.at_level(logging.WARNING):
        node.look()
        node.look()
    assert len(caplog.records) == 1
    assert node.told("train") == 1e-4
    node.clock.advance(901)
    assert node.told("train") is None


def test_a_centre_that_does_not_know_the_job_yet_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.ranks = [("train", True)]
    node.centre.error = RequestRejected("404")
    with caplog.at_level(logging.WARNING):
        node.look()
    assert caplog.records == []
    assert node.told("train") is None


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path / "missing")
    node.ranks = [("train", True)]
    with caplog.at_level(logging.WARNING):
        node.look()
    assert "keep the last value" in caplog.text
