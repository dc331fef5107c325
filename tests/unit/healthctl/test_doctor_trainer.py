from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.doctor.diagnosis import Diagnosis, DiagnosisState
from healthctl.doctor.torch_variables import (
    TorchInstallation,
    installed_torch,
    parse_variable_names,
    read_torch_headers,
)
from healthctl.doctor.trainer_environment import NOBODY_READS, VARIABLES, check_trainer_environment

Run = Callable[..., Result]
TORCH = TorchInstallation(
    "2.13.0",
    {
        "TORCH_NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
        "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
        "TORCH_NCCL_HIGH_PRIORITY": "TORCH_NCCL_HIGH_PRIORITY",
    },
)


def of(environ: dict[str, str]) -> dict[str, Diagnosis]:
    return {each.part: each for each in check_trainer_environment(environ, TORCH)}


def test_an_environment_with_nothing_set_is_good() -> None:
    found = of({"PATH": "/bin"})
    assert {each.state for each in found.values()} == {DiagnosisState.GOOD}
    assert set(found) == {"torch", *(variable.name for variable in VARIABLES)}


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", DiagnosisState.BAD),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", DiagnosisState.GOOD),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", DiagnosisState.BAD),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "three", DiagnosisState.BAD),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", DiagnosisState.BAD),
        ("TORCH_NCCL_BLOCKING_WAIT", "False", DiagnosisState.GOOD),
        ("TORCH_NCCL_ENABLE_MONITORING", "0", DiagnosisState.BAD),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "300", DiagnosisState.GOOD),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "1", DiagnosisState.BAD),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "soon", DiagnosisState.BAD),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "n", DiagnosisState.BAD),
        ("TORCH_FR_BUFFER_SIZE", "0", DiagnosisState.BAD),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", DiagnosisState.GOOD),
        ("TORCH_FR_DUMP_TEMP_FILE", "here", DiagnosisState.BAD),
        ("TORCH_FR_DUMP_TEMP_FILE", "/shared/job-7/trace-", DiagnosisState.GOOD),
        ("TORCH_NCCL_DESYNC_DEBUG", "1", DiagnosisState.ABSENT),
        ("TORCH_NCCL_DESYNC_DEBUG", "perhaps", DiagnosisState.BAD),
        ("CUDA_LAUNCH_BLOCKING", "1", DiagnosisState.BAD),
    ],
)
def test_a_value_is_judged(name: str, value: str, state: DiagnosisState) -> None:
    advice = of({name: value})[name]
    assert advice.state is state
    assert bool(advice.why and advice.todo) is (state is not DiagnosisState.GOOD)


def test_an_old_name_counts_as_the_new_one_unless_both_are_set() -> None:
    found = of({"NCCL_BLOCKING_WAIT": "1"})
    assert found["NCCL_BLOCKING_WAIT"].todo == "set TORCH_NCCL_BLOCKING_WAIT instead"
    assert found["TORCH_NCCL_BLOCKING_WAIT"].state is DiagnosisState.BAD
    both = of({"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "0"})
    assert "takes precedence" in both["NCCL_BLOCKING_WAIT"].found
    assert both["TORCH_NCCL_BLOCKING_WAIT"].state is DiagnosisState.GOOD


def test_names_that_nobody_reads_are_said() -> None:
    found = of({"NCCL_TIMEOUT": "1800", "TORCH_NCCL_HEARTBEAT": "9", "TORCH_NCCL_HIGH_PRIORITY": "1"})
    assert found["NCCL_TIMEOUT"].state is DiagnosisState.BAD
    assert "init_process_group" in found["NCCL_TIMEOUT"].todo
    assert found["TORCH_NCCL_HEARTBEAT"].state is DiagnosisState.ABSENT
    assert "TORCH_NCCL_HIGH_PRIORITY" not in found


def test_the_advice_is_about_variables_that_the_installed_torch_reads() -> None:
    torch = installed_torch()
    assert torch is not None
    ours = {variable.name for variable in VARIABLES} - {"CUDA_LAUNCH_BLOCKING"}
    assert ours <= set(torch.reads)
    assert not set(NOBODY_READS) & set(torch.reads)
    aliases = {name for name, new in torch.reads.items() if name != new and name.startswith("NCCL_")}
    assert {"NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING"} <= aliases


def test_a_name_that_is_first_somewhere_stays_itself() -> None:
    header = """
    static std::vector<std::string> A = {"TORCH_FR_SIZE", "TORCH_NCCL_SIZE"};
    static std::vector<std::string> B = {"TORCH_NCCL_SIZE"};
    static std::vector<std::string> C = {
        "TORCH_NCCL_WAIT",
        "NCCL_WAIT"};
    other = {"NOT_OURS", "NCCL_X"};
    """
    assert parse_variable_names(header) == {
        "TORCH_FR_SIZE": "TORCH_FR_SIZE",
        "TORCH_NCCL_SIZE": "TORCH_NCCL_SIZE",
        "TORCH_NCCL_WAIT": "TORCH_NCCL_WAIT",
        "NCCL_WAIT": "TORCH_NCCL_WAIT",
    }


@given(st.text(alphabet='{}",;= \nTORCH_NCCL_FR', max_size=200))
def test_no_header_is_too_odd_to_read(header: str) -> None:
    assert set(parse_variable_names(header).values()) <= set(parse_variable_names(header))


def test_a_folder_without_headers_is_no_torch(tmp_path: Path) -> None:
    assert read_torch_headers(tmp_path) is None


def test_the_command(healthctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TIMEOUT", "1800")
    result = healthctl("doctor", "--trainer")
    assert result.exit_code == 1
    assert "NCCL_TIMEOUT: 1800: not read by any version of PyTorch" in result.stdout
    assert "kernel log" not in result.stdout
