"""Where ranks meet: nobody goes on alone, who comes late is heard, and an attempt of before says nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.world.rank_rendezvous import Meeting

WALKS = "walks"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str, int], Meeting]]:
    """Makes a rank's meeting, of two; all are closed, and nobody is left waiting in one."""
    made: list[Meeting] = []

    def meeting(attempt: str, rank: int) -> Meeting:
        (tmp_path / attempt).mkdir(exist_ok=True)
        made.append(Meeting(tmp_path / attempt, rank, 2, "127.0.0.1"))
        return made[-1]

    yield meeting
    for each in made:
        each.close()
    for thread in threading.enumerate():
        if thread.name == WALKS:
            thread.join()


def come(meeting: Meeting, times: int) -> threading.Thread:
    """In a thread: this rank meets the others so many times."""

    def walk() -> None:
        with contextlib.suppress(ConnectionAbortedError):
            for number in range(times):
                meeting.meet(str(number))

    thread = threading.Thread(target=walk, name=WALKS, daemon=True)
    thread.start()
    return thread


def test_nobody_goes_on_before_all_are_there(make: Callable[[str, int], Meeting]) -> None:
    first = make("a", 0)
    walks = come(first, 3)
    walks.join(0.5)
    assert walks.is_alive()
    late = make("a", 1)
    others = come(late, 2)
    others.join(60)
    assert not others.is_alive()
    walks.join(0.5)
    assert walks.is_alive(), "one of them was there twice only"
    late.meet("3")
    walks.join(60)
    assert not walks.is_alive()


def test_a_rank_of_another_attempt_is_not_heard(make: Callable[[str, int], Meeting], tmp_path: Path) -> None:
    now, before = make("b", 0), make("a", 1)
    (tmp_path / "a" / "address-0").write_text((tmp_path / "b" / "address-0").read_text())
    come(before, 1)
    walks = come(now, 1)
    walks.join(0.7)
    assert walks.is_alive()
