"""The stepped clock: the wall clock moves at once, waits and the monotonic clock do not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.world.stepped_clock import build, environment, set_offset

LOOK = (
    "import time, threading\n"
    "began, wall = time.monotonic(), time.time()\n"
    "time.sleep(0.05); threading.Event().wait(0.05)\n"
    "print(wall, time.time_ns() / 1e9, time.monotonic() - began, time.monotonic())"
)


def test_the_wall_clock_is_off_and_nothing_else_is(tmp_path: Path) -> None:
    library, file = build(tmp_path), tmp_path / "clock"
    for offset_s in (0.0, -3600.0, 3600.0):
        set_offset(file, offset_s)
        env = os.environ | environment(library, file)
        before, monotonic = time.time(), time.monotonic()
        done = subprocess.run([sys.executable, "-c", LOOK], env=env, check=True, capture_output=True, text=True)
        after = time.time()
        wall, exact, waited_s, now = map(float, done.stdout.split())
        assert before + offset_s <= wall <= exact <= after + offset_s
        assert waited_s >= 0.1
        assert monotonic <= now <= time.monotonic()
