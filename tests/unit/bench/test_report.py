"""The report of all budgets: what counts as met, and how it reads."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.budgets.table import BUDGETS
from bench.report import main as command
from bench.report.machine import Machine
from bench.report.records import (
    Answer,
    Beside,
    Budget,
    Effort,
    Failed,
    Figure,
    Limit,
    Measured,
    Outcome,
    Statistic,
    Unmeasured,
    at_most,
    split_into_repeats,
    summarise_outcome,
    summarise_values,
)
from bench.report.render import Result, Run, format_number, render_report

GOLDEN = Path(__file__).parents[2] / "golden" / "bench" / "report.md"
VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)
MACHINE = Machine(
    processor="A Processor @ 2 GHz",
    cores=2,
    memory_gib=24.0,
    system="Debian 12",
    kernel="6.1",
    hz=250,
    python="3.11.7",
    commit="0123456789",
)


def budget(name: str, target: str) -> Budget:
    return Budget(name, f"What {name} takes", target, lambda _: Failed("not for this test"))


def latency(*repeats: tuple[float, ...], **more: float) -> Figure:
    return Figure(named="latency", unit="ms", repeats=tuple(map(summarise_values, repeats)), limits=at_most(**more))


def said(name: str, target: str, answer: Answer) -> Result:
    return Result(budget(name, target), answer, 60.0, 0.5, 61.5)


def test_the_page_reads_as_it_did() -> None:
    met = Figure(
        named="resident",
        unit="MiB",
        repeats=split_into_repeats([61.0, 63.5, 62.25]),
        limits=at_most(p50=64.0),
        beside=Beside("three bare interpreters", 25.5),
    )
    many = tuple(latency((float(n),), p50=300.0) for n in range(1, 9))
    run = Run(
        machine=MACHINE,
        at="1 November 2026 00:00 UTC",
        quick=False,
        load_before=0.25,
        load_after=1.5,
        results=(
            said("memory", "≤ 64 MiB", Measured(figures=(met,), how="Looked at.")),
            said(
                "line",
                "p99 ≤ 10 ms",
                Measured(
                    figures=(latency((1.0, 2.0, 40.0), (1.5, 2.5, 30.0), p50=3.0, p99=10.0),),
                    how="Written and read.",
                    because="the disk is slow",
                    moves="a disk",
                ),
            ),
            said("pages", "< 300 ms", Measured(figures=many, how="Looked at.")),
            said("gate", "≤ 10 s", Unmeasured("no GPU.", "none.", figures=(latency((6.5,)),))),
            said("broken", "≤ 1 s", Failed("exit code 1\nOSError")),
        ),
    )
    text = render_report(run)
    if os.environ.get("GOLDEN") == "update":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@given(VALUES)
def test_a_summary_keeps_the_order_of_its_numbers(values: list[float]) -> None:
    found = summarise_values(values)
    assert min(values) <= found.median <= found.p99 <= found.most == max(values)
    assert found.n == len(values)


@given(st.lists(st.floats(1, 100), min_size=3, max_size=3))
def test_one_disturbed_repeat_does_not_decide(medians: list[float]) -> None:
    figure = latency(*((value,) for value in medians), p50=sorted(medians)[1])
    assert figure.met
    assert figure.spread == (min(medians), max(medians))


def test_every_limit_must_hold() -> None:
    assert latency((1.0, 2.0, 40.0), p50=3.0).met
    assert latency((1.0, 2.0, 40.0), p50=3.0, p99=10.0).met is False
    assert latency((1.0,)).met is None
    floor = Limit(Statistic.MEDIAN, 1250.0, floor=True)
    assert msgspec.structs.replace(latency((1247.0,)), limits=(floor,)).met is False
    assert msgspec.structs.replace(latency((1250.0,)), limits=(floor,)).met


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Measured(figures=(latency((1.0,), p50=2.0), latency((1.0,))), how=""), Outcome.MET),
        (Measured(figures=(latency((1.0,), p50=2.0), latency((3.0,), p50=2.0)), how=""), Outcome.MISSED),
        (Unmeasured("no GPU", "none", figures=(latency((3.0,), p50=2.0),)), Outcome.NOT_HERE),
        (Failed("died"), Outcome.FAILED),
    ],
)
def test_one_missed_figure_misses_the_budget(answer: Answer, word: Outcome) -> None:
    assert summarise_outcome(answer) is word
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer  # as it comes from its process


def test_nothing_measured_is_no_figure() -> None:
    with pytest.raises(ValueError, match="no values"):
        summarise_values([])


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_three_digits_count(value: float, text: str) -> None:
    assert format_number(value) == text


def test_names_of_budgets_are_told_apart() -> None:
    names = [each.name for each in BUDGETS]
    assert len(set(names)) == len(names)


def test_a_name_that_is_no_budgets_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["kernel-lime"]) == 2
    assert "no budget 'kernel-lime'; there are: healthd-at-rest" in capsys.readouterr().err


def test_a_measurement_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    unknown = budget("unknown", "")
    answer = command.in_a_process(unknown, Effort(quick=True), tmp_path / "answer")
    assert isinstance(answer, Failed)
    assert "StopIteration" in answer.why
