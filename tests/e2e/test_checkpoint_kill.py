"""SIGKILL at every step of a save: a whole checkpoint is always there, the one before or the new one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
FILE = re.compile(r"__0_\d+\.")  # which tensor is in which is torch's to choose
PHASES = {
    "new": {
        "os.mkdir .step-000000002.tmp",
        "open __0_N.distcp",
        "open .metadata.tmp",
        "os.rename .metadata.tmp",
        "open manifest.json",
        "os.rename .step-000000002.tmp",
        "os.rename step-000000001",
        "shutil.rmtree .step-000000001.gone",
    },
    "again": {"os.rename step-000000001", "os.rename .step-000000001.tmp", "shutil.rmtree .step-000000001.old"},
    "linked": {"open __0_N.distcp", "os.link __0_N.distcp", "os.rename .step-000000002.tmp"},
}


@pytest.mark.parametrize("variant", PHASES)
def test_killed_at_any_moment_a_whole_checkpoint_is_left(variant: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_while_saving.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path), variant],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True, timeout=380,
    )  # fmt: skip
    deaths = [json.loads(line) for line in done.stdout.splitlines()]

    alive = deaths.pop()
    new = 2 if variant == "again" else 3
    assert (alive["signal"], alive["loaded"]) == (0, {"begin": new, "values": [2.0]})
    where = [death["where"] for death in deaths]
    assert PHASES[variant] <= {FILE.sub("__0_N.", each) for each in where}, where
    assert {death["signal"] for death in deaths} <= {signal.SIGKILL, signal.SIGXFSZ, 0}
    assert sum(death["signal"] == signal.SIGXFSZ for death in deaths) == (4 if variant == "new" else 0)
    before, after = {"begin": 2, "values": [1.0]}, {"begin": new, "values": [2.0]}
    for death in deaths:
        assert death["exit"] == 0, (death, done.stderr)
        assert death["loaded"] in (before, after), death
    assert before in [death["loaded"] for death in deaths]
    assert after in [death["loaded"] for death in deaths]
