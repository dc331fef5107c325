from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.durations import format_duration_short, parse_duration
from remediator.decisions.spare_nodes import spares_wanted

Run = Callable[..., Result]
ASKED = ("advise", "checkpoint", "--nodes", "512", "--mtbf", "50000h")


def test_the_trade_off_is_shown_around_the_optimum(healthctl: Run) -> None:
    done = healthctl(*ASKED, "--cost", "60s", "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["job_mtbf_s"] == pytest.approx(50_000 * 3600 / 512)
    assert found["interval_s"] == pytest.approx(6455, abs=1)
    assert [c["times_optimum"] for c in found["choices"]] == [0.25, 0.5, 1, 2, 4]
    wasted = [c["waste"] for c in found["choices"]]
    assert min(wasted) == wasted[2]
    for choice in found["choices"]:
        assert choice["waste"] == pytest.approx(choice["checkpoint"] + choice["rework"] + choice["restart"])
    assert found["choices"][2]["lost_gpu_hours_per_day"] == pytest.approx(wasted[2] * 512 * 8 * 24)


def test_people_get_a_table(healthctl: Run) -> None:
    done = healthctl(*ASKED, "--cost", "1m")
    assert "save every           1h48m" in done.stdout
    assert "optimum  2.00 %  0.91 %  0.92 %" in done.stdout


def test_no_save_begins_while_another_is_being_written(healthctl: Run) -> None:
    done = healthctl(*ASKED, "--cost", "1s", "--write", "3h")
    assert "save every           3h (the duration of a write" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cost", "soon"), "'soon' is not a duration; use 90s, 5m, 2h, 3d"),
        (("--cost", "0"), "longer than 0"),
        (("--cost", "-5s"), "is not a duration"),
        (("--cost", "5s", "--nodes", "0"), "--nodes"),
        (("--cost", "5s", "--mtbf", "1s"), "no checkpoint helps"),
        (("--cost", "5s", "--restart", "nan"), "is not a duration"),
        ((), "--cost"),
    ],
)
def test_bad_input_is_wrong_usage_and_says_what_is_wrong(
    healthctl: Run, arguments: tuple[str, ...], words: str
) -> None:
    done = healthctl(*ASKED, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("3d", 259200),
        ("1h30m", 5400),
        ("45", 45),
        ("1.5 h", 5400),
        ("20ms", 0.02),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert "duration" in str(error) or "longer" in str(error)  # noqa: PT017 - either way out is right


@given(st.floats(1, 1e9))
def test_what_is_printed_is_about_what_was_meant(seconds: float) -> None:
    assert parse_duration(format_duration_short(seconds)) == pytest.approx(seconds, rel=0.05)


def test_spares_cover_what_is_seldom_exceeded(healthctl: Run) -> None:
    asked = ("advise", "spares", "--nodes", "1024", "--failures-per-1000-node-days", "6.5", "--repair", "20h")
    done = healthctl(*asked, "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["out_on_average"] == pytest.approx(5.52, abs=0.01)
    assert found["spares"] == 12
    assert "12 for 1024 nodes, sufficient 99 % of the time" in healthctl(*asked).stdout


@given(st.integers(1, 3000), st.floats(0, 1000), st.floats(60, 1e6), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_spares_are_the_least_that_suffice(nodes: int, rate: float, repair_s: float, quantile: float) -> None:
    wanted = spares_wanted(nodes, rate, repair_s, quantile)
    load = rate / 1000 * repair_s / 86_400
    out = load / (1 + load)
    if out > 0:
        terms = [
            math.lgamma(nodes + 1) - math.lgamma(k + 1) - math.lgamma(nodes - k + 1)
            + k * math.log(out) + (nodes - k) * math.log1p(-out)
            for k in range(wanted.spares + 1)
        ]  # fmt: skip
        reached = [math.fsum(map(math.exp, terms[: k + 1])) for k in (wanted.spares - 1, wanted.spares)]
        assert wanted.spares == nodes or reached[1] >= quantile - 1e-6
        assert wanted.spares == 0 or reached[0] < quantile + 1e-6
    else:
        assert wanted.spares == 0
