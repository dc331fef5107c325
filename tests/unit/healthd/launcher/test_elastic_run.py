"""What a launcher that has replaced ranks knows afterwards, with processes that only talk to it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.healthd.launcher.launcher_process import QUICK, attempts, launch, read_events


def test_a_node_that_was_condemned_on_the_way_is_not_used_by_a_later_attempt(tmp_path: Path) -> None:
    events, program = tmp_path / "events", str(Path(__file__).with_name("swapped_rank.py"))
    options = ("--nodes=2", "--spares=1", "--swap", *QUICK)
    done = launch(*options, "--", sys.executable, program, events=events)
    assert done.returncode == 0, done.stderr
    assert attempts(events) == [["n0", "n1"], ["n0", "n2"]], done.stderr
    ended = next(event for event in read_events(events) if event["event"] == "attempt_ended")
    assert ended["condemned"] == ["n1"]
