"""Tests that the product doesn't have, which test processes find beside the product's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Its devices meet three times, and each fault keeps one away.
MEETS = """
import os, signal
from preflight.results import Outcome, Result

def check_meets(context):
    import torch
    for time in range(3):
        context.note(f"going to meeting {time}")
        if time == 1 and context.fault == "late":
            signal.pause()
        if time == 1 and context.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        context.note(f"at meeting {time}")
        torch.distributed.barrier()
    yield Result(test="meets", outcome=Outcome.PASS, evidence={"rank": torch.distributed.get_rank(), "pid": os.getpid()})
"""
SPEAKS = """
import os
from preflight.results import Outcome, Result

def check_speaks(context):
    if context.fault == "raises":
        raise RuntimeError("CUDA error: misaligned address")
    yield Result(test="speaks", outcome=Outcome.PASS, evidence={"pid": os.getpid(), "fault": context.fault})
"""
MEASURES = """
from preflight.results import Figure, Location, Outcome, Result

rounds = 0

def check_measures(context):
    global rounds
    rounds += 1
    figures = (Figure(name="copy_rate", value=12.5, unit="GB/s", setting="of ours"),)
    if context.fault == "wrong" or (context.fault == "third" and rounds == 3):
        where = (Location(gpu=context.device.name, address="0x10"),) if context.fault == "wrong" else ()
        yield Result(test="measures", outcome=Outcome.FAIL, reason="a wrong word", figures=figures, locations=where)
        return
    yield Result(test="measures", outcome=Outcome.PASS, figures=figures, remarks=("slower than it could be",))
"""


@pytest.fixture
def more_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`meets`, `speaks`, `measures`."""
    place = tmp_path / "checks"
    place.mkdir()
    for name, source in {"meets": MEETS, "speaks": SPEAKS, "measures": MEASURES}.items():
        (place / f"{name}.py").write_text(source)
    code = f"import preflight.checks\npreflight.checks.__path__.append({str(place)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", "")
