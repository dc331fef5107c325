"""A whole run: what its tests measure is judged by what is known in a folder, and a pass adds to that."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.baseline_files import BASELINE, HISTORY, BaselineError, append_history, read_history
from preflight.execution.progress_output import SilentProgress
from preflight.execution.qualification import qualify_node
from preflight.plan import Plan, Scope, Spec
from preflight.results import Document, Verdict
from vocabulary.clock import SystemClock

# A test that the product doesn't have: it measures whatever it is told to.
TELLS = """
import os
from preflight.results import Figure, Outcome, Result

def check_tells(context):
    rate = Figure(name="rate", value=float(os.environ["RATE"]), unit="GB/s")
    yield Result(test="tells", outcome=Outcome.PASS, figures=(rate,))
"""
Measure = Callable[..., Document]
PLAN = Plan("gate", (Spec("tells", Scope.NODE, 60.0, (), {"gate": 1.0}),), {})


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    (tmp_path / "tells.py").write_text(TELLS)
    (tmp_path / "sitecustomize.py").write_text(
        f"import preflight.checks\npreflight.checks.__path__.append({str(tmp_path)!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def run(rate: float, injected: tuple[str, ...] = ()) -> Document:
        monkeypatch.setenv("RATE", str(rate))
        return qualify_node(PLAN, "n1", injected, tmp_path, SystemClock(), SilentProgress())

    return run


def test_a_node_is_compared_with_its_own_passes(measure: Measure, tmp_path: Path) -> None:
    for _ in range(3):
        document = measure(100.0)
        assert (document.verdict, document.results[0].remarks) == (Verdict.PASS, ())
        append_history(tmp_path, document)
    document = measure(80.0, ("tells:slow",))
    assert document.verdict is Verdict.PASS
    assert "20.0% worse than this device's own 3 earlier passes" in document.results[0].remarks[0]
    append_history(tmp_path, document)
    (past,) = read_history(tmp_path / HISTORY).pasts
    assert past.first == (100.0, 100.0, 100.0)


def test_what_measures_nothing_is_no_pass_and_a_bad_file_stops_no_run(measure: Measure, tmp_path: Path) -> None:
    (tmp_path / BASELINE).write_text("{")
    (tmp_path / HISTORY).write_text("{")
    document = measure(0.0)
    assert document.verdict is Verdict.INCONCLUSIVE
    assert "the test measured nothing" in document.reason
    twice, *unread = document.results[0].remarks
    assert [BASELINE in remark or HISTORY in remark for remark in unread] == [True, True]
    assert twice.startswith("measured twice; the first time: rate is 0 GB/s")
    good = measure(100.0)
    assert good.verdict is Verdict.PASS
    with pytest.raises(BaselineError, match="move it away"):
        append_history(tmp_path, good)
