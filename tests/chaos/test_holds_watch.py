"""What the local backend's file says of nodes, as changes of holds."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.chaos.world.holds_watch import HoldsWatch
from tests.chaos.world.journal import Journal


def test_of_two_changes_seen_as_one_what_was_lifted_is_told_first(tmp_path: Path) -> None:
    """Seed 43: n2 was given back, n1 taken out 20 ms later, and the record had both out at once."""
    file, journal = tmp_path / "holds" / "holds.json", Journal(tmp_path / "journal")
    HoldsWatch(file, journal)
    for number, node in enumerate(("n2", "n1")):
        aside = file.with_suffix(".new")
        aside.write_text(json.dumps({"holds": {node: {"reason": f"gpu-healthd: {node}"}}}))
        aside.replace(file)
        deadline = time.monotonic() + 60
        while len(journal.read("scheduler")) < 1 + 2 * number and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [(line["node"], line["held"]) for line in journal.read("scheduler")] == [
        ("n2", True),
        ("n2", False),
        ("n1", True),
    ]
