"""The command for real, on this machine without GPUs: the file of a short session, Ctrl-C, and wrong usage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from preflight.commands.day_command import day, name_file
from preflight.commands.goldens_command import goldens
from preflight.expectations.result_judgement import Knowledge
from preflight.host.nvml_library import count_gpus
from preflight.report.document_reader import parse_day_document
from tests.unit.preflight.measurement.simulated_days import start_session

QUIET = {"HEALTHD_NVML_LIBRARY": "", "CUDA_VISIBLE_DEVICES": "", "HEALTHD_NODE": "first"}
without_gpus = pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "preflight", "day", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | QUIET | {"PYTHONPATH": str(Path(__file__).parents[4])},
    )


@pytest.mark.torch
@without_gpus
def test_a_short_session_writes_one_file_that_can_be_shown_and_recorded(tmp_path: Path) -> None:
    with start(tmp_path, "--minutes", "0.1") as process:
        said, noted = process.communicate(timeout=100)
    assert (process.returncode, said) == (0, ""), noted
    (path,) = tmp_path.glob("preflight-day-*.json")
    found = parse_day_document(path.read_bytes())
    assert (found.node, found.ending.value) == ("first", "out of time")
    assert [gate.verdict.value for gate in found.gates] == ["pass"]
    assert {device.name for device in found.devices} == {"cpu:0", "cpu:1"}
    assert {figure.test for figure in found.figures} >= {"host_link", "memory_bandwidth", "matmul_repeat"}
    assert all(0 <= use.share < 1 for use in found.rounding)
    assert found.rounding
    assert found.driver.failures
    assert any(
        "faults of the gate: 0 of" in line
        for line in CliRunner().invoke(day, ["--show", str(path)]).output.splitlines()
    )
    recorded = CliRunner().invoke(
        goldens, ["record", "--devices", "2", "--goldens", str(tmp_path / "goldens.json"), str(path)]
    )
    assert recorded.exit_code == 0, recorded.output
    # A loaded machine may have time for a second seed on one of the two devices alone: the file has it, two devices do not.
    for platform, works in json.loads((tmp_path / "goldens.json").read_text()).items():
        assert works
        assert works.items() <= found.goldens[platform].items()


@pytest.mark.torch
@without_gpus
def test_ctrl_c_writes_what_was_measured_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "day.json"
    with start(tmp_path, "--out", str(out)) as process:
        assert process.stderr
        for line in process.stderr:
            if "1/" in line:
                break
        process.send_signal(signal.SIGINT)
        _, noted = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: " in noted
    assert "day.json is written" in noted
    assert "Traceback" not in noted
    found = parse_day_document(out.read_bytes())
    assert (found.ending.value, found.gates) == ("interrupted", ())
    assert found.driver.failures


def test_an_unwritable_file_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    done = CliRunner().invoke(day, ["--out", str(tmp_path / "none" / "day.json")])
    assert done.exit_code == 3
    assert "cannot be written" in done.output
    assert "driver" not in done.output
    assert CliRunner().invoke(day, ["--out", str(tmp_path)]).exit_code == 2


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "soon"])
def test_a_time_that_is_none_is_refused(minutes: str) -> None:
    assert CliRunner().invoke(day, ["--minutes", minutes]).exit_code == 2


def test_a_file_that_is_none_is_refused_with_the_reason(tmp_path: Path) -> None:
    session, _, _ = start_session(1.0)
    good = msgspec.json.encode(session.build_document("first", Knowledge()))
    for content, says in (
        (b"", "not JSON"),
        (b"{}", "no version"),
        (good[:-9], "not JSON"),
        (good.replace(b'"node":"first"', b'"node":7'), "Expected `str`"),
    ):
        (tmp_path / "day.json").write_bytes(content)
        done = CliRunner().invoke(day, ["--show", str(tmp_path / "day.json")])
        assert (done.exit_code, says in done.output) == (3, True), done.output
    assert CliRunner().invoke(day, ["--show", str(tmp_path / "none.json")]).exit_code == 3
    assert CliRunner().invoke(day, ["--show", "a", "--out", "b"]).exit_code == 2


def test_the_default_name_has_product_and_date() -> None:
    assert name_file("NVIDIA H200 NVL", 1_800_000_000.0) == "preflight-day-nvidia-h200-nvl-2027-01-15.json"
    assert name_file("", 0.0) == "preflight-day-unknown-1970-01-01.json"
