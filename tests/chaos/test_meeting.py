"""Where ranks meet: nobody goes on alone, who comes late is heard, and an attempt of before says nothing."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.chaos.world.meeting import Meeting


def come(meeting: Meeting, times: int) -> threading.Thread:
    """In a thread: this rank meets the others so many times."""

    def walk() -> None:
        for number in range(times):
            meeting.meet(str(number))

    thread = threading.Thread(target=walk, daemon=True)
    thread.start()
    return thread


def test_nobody_goes_on_before_all_are_there(tmp_path: Path) -> None:
    first = Meeting(tmp_path, 0, 2, "127.0.0.1")
    walks = come(first, 3)
    walks.join(0.5)
    assert walks.is_alive()
    late = Meeting(tmp_path, 1, 2, "127.0.0.1")
    others = come(late, 2)
    others.join(60)
    assert not others.is_alive()
    walks.join(0.5)
    assert walks.is_alive(), "one of them was there twice only"
    late.meet("3")
    walks.join(60)
    assert not walks.is_alive()


def test_a_rank_of_another_attempt_is_not_heard(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    now = Meeting(tmp_path / "b", 0, 2, "127.0.0.1")
    before = Meeting(tmp_path / "a", 1, 2, "127.0.0.1")
    (tmp_path / "a" / "address-0").write_text((tmp_path / "b" / "address-0").read_text())
    come(before, 1)
    walks = come(now, 1)
    walks.join(0.7)
    assert walks.is_alive()
