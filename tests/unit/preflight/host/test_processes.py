"""The whole way: two real processes take turns on the link, and the one with the fault is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from preflight.results import Document, Outcome, Verdict

pytestmark = pytest.mark.torch


def test_of_two_processes_the_one_with_the_narrow_link_is_named() -> None:
    words = [sys.executable, "-m", "preflight", "run", "--level", "gate", "-o", "json"]
    words += ["--only", "software", "--only", "host_link", "--inject", "host_link:narrow@cpu:0"]
    done = subprocess.run(words, cwd=Path(__file__).parents[4], capture_output=True, timeout=100, check=False)
    document = msgspec.json.decode(done.stdout, type=Document)
    assert done.returncode == Verdict.FAIL.exit_code
    outcomes = {(result.test, result.device): result.outcome for result in document.results}
    assert outcomes == {
        ("software", ""): Outcome.PASS,
        ("host_link", "cpu:0"): Outcome.FAIL,
        ("host_link", "cpu:1"): Outcome.PASS,
    }
    assert "8 of 16 lanes" in document.reason
