"""The decision file of NVIDIA's launcher: its rule in our words, and its own reader where it is installed."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.segment_health import Segment, condemn, condemned_segment, find_segment, pardon

ARRAY = {"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "7", "SLURM_JOB_ID": "130", "SLURM_PROCID": "0"}
JOB = {"SLURM_JOB_ID": "130", "SLURM_PROCID": "0"}
Usable = Callable[[Path, dict[str, str]], bool]


def by_the_documented_rule(directory: Path, environ: dict[str, str]) -> bool:
    """Usable unless there is a regular file with something in it."""
    job = environ.get("SLURM_ARRAY_JOB_ID") or environ["SLURM_JOB_ID"]
    path = directory / f"segment_health_check.{job}.{environ.get('SLURM_ARRAY_TASK_ID') or job}"
    try:
        found = path.stat()
    except OSError:
        return True
    return not (stat.S_ISREG(found.st_mode) and found.st_size > 0)


def by_nvidias_reader(directory: Path, environ: dict[str, str]) -> bool:
    module = pytest.importorskip("nvidia_resiliency_ext.fault_tolerance.segment_health_check")
    with pytest.MonkeyPatch.context() as patch:
        for name in ARRAY:
            patch.delenv(name, raising=False)
        for name, value in environ.items():
            patch.setenv(name, value)
        check = module.get_segment_health_check(str(directory))
    assert check is not None
    return bool(check())


@pytest.fixture(params=[by_the_documented_rule, by_nvidias_reader])
def usable(request: pytest.FixtureRequest) -> Usable:
    reader: Usable = request.param
    return reader


@pytest.mark.parametrize("environ", [ARRAY, JOB])
def test_condemned_and_pardoned(tmp_path: Path, usable: Usable, environ: dict[str, str]) -> None:
    segment = find_segment(environ)
    assert segment is not None
    assert usable(tmp_path, environ)
    condemn(tmp_path, segment, "GPU 3 fell off the bus")
    condemn(tmp_path, segment, "and again")
    assert not usable(tmp_path, environ)
    assert usable(tmp_path, {**environ, "SLURM_JOB_ID": "131", "SLURM_ARRAY_JOB_ID": "131"})
    assert [path.name for path in tmp_path.iterdir()] == [segment.file_name]  # nothing left aside
    assert json.loads((tmp_path / segment.file_name).read_text())["why"] == "and again"
    pardon(tmp_path, segment)
    pardon(tmp_path, segment)
    assert usable(tmp_path, environ)


def test_only_a_rank_of_a_condemned_node_marks_its_unit(tmp_path: Path, usable: Usable) -> None:
    for code in (ExitCode.RELAUNCH, ExitCode.ABORTED):
        with pytest.raises(Leave), condemned_segment(tmp_path, environ=ARRAY):
            raise Leave(code)
    with condemned_segment(tmp_path, environ=ARRAY):
        pass
    assert usable(tmp_path, ARRAY)
    with pytest.raises(Leave), condemned_segment(environ={**ARRAY, "HEALTHD_SEGMENT_HEALTH_DIR": str(tmp_path)}):
        raise Leave(ExitCode.CONDEMNED)
    assert not usable(tmp_path, ARRAY)
    assert json.loads((tmp_path / "segment_health_check.123.7").read_text())["why"].endswith("and have saved")
    with pytest.raises(Leave), condemned_segment(tmp_path, environ=ARRAY):
        raise Leave(ExitCode.ABORTED, condemned=True)
    assert json.loads((tmp_path / "segment_health_check.123.7").read_text())["why"].endswith("without saving")


def test_a_job_that_is_no_array_is_not_ended_for_one_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Leave), condemned_segment(tmp_path, environ=JOB):
        raise Leave(ExitCode.CONDEMNED)
    assert by_the_documented_rule(tmp_path, JOB)
    assert "not an array" in caplog.text
    with pytest.raises(Leave), condemned_segment(tmp_path, environ=JOB, whole_job=True):
        raise Leave(ExitCode.CONDEMNED)
    assert not by_the_documented_rule(tmp_path, JOB)


@pytest.mark.parametrize("directory", ["relative", "/nowhere/at/all"])
def test_leaving_goes_on_when_the_file_cannot_be_written(directory: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Leave) as left, condemned_segment(directory, environ=ARRAY):
        raise Leave(ExitCode.CONDEMNED)
    assert left.value.code == ExitCode.CONDEMNED
    assert "segment health" in caplog.text


def test_outside_slurm_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(Leave), condemned_segment(tmp_path, environ={}):
        raise Leave(ExitCode.CONDEMNED)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    segment, seen, stop = Segment("1", "2", array=True), set(), threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                seen.add(json.loads((tmp_path / segment.file_name).read_bytes())["why"])
            except FileNotFoundError:
                continue

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(50):
        condemn(tmp_path, segment, "x" * 9000)
        pardon(tmp_path, segment)
    stop.set()
    reader.join()
    assert seen <= {"x" * 9000}


@given(st.dictionaries(st.sampled_from(sorted(ARRAY)), st.text(max_size=12)))
def test_no_environment_leads_out_of_the_directory(environ: dict[str, str]) -> None:
    segment = find_segment(environ)
    assert segment is None or os.path.basename(segment.file_name) == segment.file_name  # noqa: PTH119 - a name, no path


def test_a_reason_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reason"):
        condemn(tmp_path, Segment("1", "2", array=True), " ")
