"""A disk that is full: said clearly, the checkpoint before stays, its room is given back, and later saves work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("left", [500_000, 4096])  # bytes
def test_a_full_disk_costs_the_new_checkpoint_only(left: int, tmp_path: Path) -> None:
    """A file system of 3 MiB in a mount namespace of its own."""
    script = Path(__file__).with_name("full_disk.py")
    inside = f"mount -t tmpfs -o size=3m none {tmp_path} && exec {sys.executable} -W ignore {script} {tmp_path} {left}"
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", inside],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)

    synchronous, begun, surfaced = told["said"]
    assert begun == ""
    for step, text in ((2, synchronous), (3, surfaced)):
        assert f"step {step} was not saved, the previous checkpoint stays: [Errno 28] No space left on device" in text
        assert "MB are free)" in text
        assert "Traceback" not in text
    assert (told["begin_full"], told["left"]) == (2, ["step-000000001"])
    assert told["begin"] == 6
