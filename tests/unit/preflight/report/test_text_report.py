from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from preflight.plan import build_plan
from preflight.report.repair_advice import advise_repair, list_next_steps
from preflight.report.result_tables import ReportedFailure
from preflight.report.text_report import render_text
from preflight.results import COUNTED, Document, Outcome, Result, Verdict

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", ["passing", "failing", "hanging", "huge"])
def test_the_page(name: str, request: pytest.FixtureRequest, golden: Callable[[str, str], None]) -> None:
    golden(f"preflight/report/{name}.txt", render_text(request.getfixturevalue(name)) + "\n")


def test_the_verdict_stands_first_and_what_failed_before_what_did_not(failing: Document) -> None:
    lines = render_text(failing).splitlines()
    assert "FAIL at level burn-in" in lines[0]
    first = next(line for line in lines[1:] if line.startswith(("FAIL", "test ")))
    assert first == "FAIL memory_pattern on cuda:5"


def test_colour_changes_no_word(failing: Document) -> None:
    coloured = render_text(failing, colour=True)
    assert ESCAPE.search(coloured)
    assert ESCAPE.sub("", coloured) == render_text(failing)


def test_nothing_in_a_document_can_steer_a_terminal(hostile: Document) -> None:
    assert render_text(hostile).replace("\n", "").isprintable()
    assert ESCAPE.sub("", render_text(hostile, colour=True)).replace("\n", "").isprintable()


def test_a_reason_without_a_result_is_told(passing: Document) -> None:
    lacking = msgspec.structs.replace(
        passing, verdict=Verdict.INCONCLUSIVE, reason="storage: no result", reasons=("storage: no result",)
    )
    assert "because storage: no result" in render_text(lacking)


def test_tests_that_say_the_same_of_one_device_are_told_once(hanging: Document) -> None:
    lost = tuple(
        Result(test=test, outcome=Outcome.NOT_RUN, device="cuda:1", reason="cuda:1 is lost")
        for test in ("memory_pattern", "matmul_repeat")
    )
    text = render_text(msgspec.structs.replace(hanging, results=lost))
    assert text.count("cuda:1 is lost") == 1
    assert "not run memory_pattern, matmul_repeat on cuda:1" in text


def test_a_flood_of_failures_is_cut_and_counted(failing: Document) -> None:
    flood = tuple(
        Result(test="memory_pattern", outcome=Outcome.FAIL, device=f"cuda:{n}", reason=f"wrong {n}") for n in range(100)
    )
    text = render_text(msgspec.structs.replace(failing, results=flood, reasons=()))
    assert text.count("  why ") == 30
    assert "and 70 more" in text


def test_a_document_of_nothing_is_a_page(passing: Document) -> None:
    empty = msgspec.structs.replace(passing, results=(), devices=(), software={}, seconds=float("nan"))
    assert render_text(empty).startswith("gpu-node-17: PASS")


def test_what_did_not_run_is_told_in_full_where_nothing_failed(hanging: Document) -> None:
    unsure = tuple(result for result in hanging.results if result.outcome is not Outcome.HANG)
    text = render_text(msgspec.structs.replace(hanging, results=unsure, verdict=Verdict.INCONCLUSIVE, reasons=()))
    assert "error host_memory\n  why     MemoryError: 8 GiB asked for\n  do" in text


def test_a_host_is_not_told_to_replace_its_gpu(failing: Document) -> None:
    wrong = Result(test="memory_pattern", outcome=Outcome.FAIL, device="cpu:0", reason="1 wrong word")
    assert "GPU" not in advise_repair(ReportedFailure("gate", (wrong.test,), wrong))
    assert "replace the GPU" in advise_repair(
        ReportedFailure("gate", (wrong.test,), msgspec.structs.replace(wrong, device="cuda:0"))
    )


def test_what_is_misconfigured_is_put_right_and_not_condemned(passing: Document) -> None:
    busy = Result(test="gpu_state", outcome=Outcome.NOT_RUN, reason="pid 7 of ann computes there", misconfigured=True)
    document = msgspec.structs.replace(passing, results=(busy,), verdict=Verdict.MISCONFIGURED, reasons=())
    steps = list_next_steps(document)
    assert (
        steps[0]
        == "gpu_state: Fix the cause named in the reason, then run it again with --level gate --only gpu_state."
    )
    assert "neither failed" in steps[-1]
    assert not list_next_steps(passing)


def test_the_advice_can_be_typed_as_it_stands() -> None:
    """A test of a deep level alone does not run at the default one."""
    wrong = ReportedFailure("standard", ("storage",), Result(test="storage", outcome=Outcome.ERROR, reason="no room"))
    options = advise_repair(wrong).partition("again with ")[2].rstrip(".").split()
    level, tests = options[1], options[3::2]
    assert [spec.test for spec in build_plan(level, tests).specs] == ["storage"]


def test_counters_that_failed_a_test_are_not_answered_with_the_tests_own_advice() -> None:
    wrong = Result(test="memory_bandwidth", outcome=Outcome.FAIL, device="cuda:0", evidence={COUNTED: True})
    assert advise_repair(ReportedFailure("gate", (wrong.test,), wrong)).startswith(
        "Follow the reason: reset or replace"
    )
    unknown = Result(test="hardware_counters", outcome=Outcome.ERROR, device="cuda:0", reason="Xid 999")
    advice = advise_repair(ReportedFailure("gate", (unknown.test, "collectives"), unknown))
    assert advice.endswith("run it again with --level gate --only collectives.")
