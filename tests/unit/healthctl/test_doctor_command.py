from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from healthctl.commands.doctor_command import PARTS
from healthctl.doctor.daemon import check_controller, check_daemon
from healthctl.doctor.diagnosis import Diagnosis, DiagnosisState
from healthctl.doctor.directory_checks import check_directories
from healthctl.doctor.driver_checks import check_hardware
from healthctl.doctor.kernel_log_checks import check_kernel_log
from healthctl.doctor.order_prerequisites import check_order_prerequisites
from healthd.config import Config, KernelLogConfig, LogSource, OrdersConfig, RemediatorConfig
from vocabulary.order import OrderKind

Run = Callable[..., Result]


def by_part(advice: object) -> dict[str, Diagnosis]:
    return {each.part: each for each in advice}  # type: ignore[attr-defined]  # any iterable of Advice


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mounts"
    file.write_text(f"disk / ext4 rw 0 0\nshm {tmp_path}/memory tmpfs rw 0 0\nbad\n")
    (tmp_path / "memory").mkdir()
    return file


def test_directories_on_the_right_kind_of_disk_are_good(tmp_path: Path, mounts: Path) -> None:
    config = Config(state_dir=tmp_path / "state", run_dir=tmp_path / "run", beacon_dir=tmp_path / "memory" / "pages")
    assert {each.state for each in check_directories(config, mounts)} == {DiagnosisState.GOOD}


def test_findings_in_memory_and_beacons_on_a_disk_are_bad(tmp_path: Path, mounts: Path) -> None:
    config = Config(state_dir=tmp_path / "memory" / "state", run_dir=tmp_path, beacon_dir=tmp_path / "pages")
    found = by_part(check_directories(config, mounts))
    assert found["state_dir"].state is DiagnosisState.BAD
    assert "lost after a reboot" in found["state_dir"].found
    assert found["beacon_dir"].state is DiagnosisState.BAD
    assert "/dev/shm" in found["beacon_dir"].todo


def test_a_kernel_log_that_is_not_there_is_bad(tmp_path: Path) -> None:
    config = Config(kernel_log=KernelLogConfig(path=tmp_path / "none", source=LogSource.KMSG))
    assert by_part(check_kernel_log(config))["kernel log"].state is DiagnosisState.BAD


def test_a_journal_serves_where_the_kernel_log_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    auto = Config(kernel_log=KernelLogConfig(path=tmp_path / "none"))
    journal = Config(kernel_log=KernelLogConfig(source=LogSource.JOURNAL))
    assert [by_part(check_kernel_log(c))["kernel log"].state for c in (auto, journal)] == [
        DiagnosisState.BAD,
        DiagnosisState.BAD,
    ]
    (tmp_path / "journalctl").write_text("#!/bin/sh\n")
    (tmp_path / "journalctl").chmod(0o755)
    assert [by_part(check_kernel_log(c))["kernel log"].state for c in (auto, journal)] == [
        DiagnosisState.ABSENT,
        DiagnosisState.GOOD,
    ]


def test_a_plain_file_that_users_may_reach_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    found = by_part(check_kernel_log(Config(kernel_log=KernelLogConfig(path=tmp_path / "log"))))["kernel log"]
    assert found.state is DiagnosisState.ABSENT
    assert "second evidence source" in found.why


def test_a_kernel_log_that_can_be_read_is_good(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    config = Config(accept_injected=True, kernel_log=KernelLogConfig(path=tmp_path / "log", trust_file=True))
    found = by_part(check_kernel_log(config))["kernel log"]
    assert found.state is DiagnosisState.GOOD
    assert "accepts marked test faults" in found.found


def test_gpus_are_looked_for_on_the_bus(tmp_path: Path) -> None:
    for name, vendor in (("0000:01:00.0", "0x10de"), ("0000:02:00.0", "0x15b3")):
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    assert next(check_hardware(Config(), str(tmp_path))).found == "1 NVIDIA devices on the PCI bus"
    assert next(check_hardware(Config(), str(tmp_path / "sys"))).state is DiagnosisState.ABSENT


def test_a_program_that_an_order_needs_is_missed(tmp_path: Path) -> None:
    commands = OrdersConfig(
        reset_gpu_command=(str(tmp_path / "reset"),), preflight_command=(str(tmp_path / "preflight"),)
    )
    found = by_part(check_order_prerequisites(Config(orders=commands)))
    assert found["reset"].state is DiagnosisState.ABSENT
    assert found["preflight"].state is DiagnosisState.BAD


def test_a_program_of_an_order_that_is_not_allowed_is_not_missed() -> None:
    found = by_part(check_order_prerequisites(Config(orders=OrdersConfig(allow=frozenset({OrderKind.ABORT})))))
    assert not {"reset", "preflight"} & found.keys()


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [(None, 0, "No such file"), ("", 0o400, "is empty"), ("t", 0o644, "read by other users"), ("t", 0o400, None)],
)
def test_the_token_is_looked_at(tmp_path: Path, text: str | None, mode: int, words: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    config = Config(remediator=RemediatorConfig(url="http://127.0.0.1:1", token_file=path))
    found = by_part(check_controller(config))
    assert (found["token"].state is DiagnosisState.BAD) == (words is not None)
    assert (words or str(path)) in found["token"].found
    assert found["remediator"].state is DiagnosisState.BAD  # nobody listens there


def test_on_a_kubernetes_node_the_doctor_names_the_runtime_class(tmp_path: Path) -> None:
    """Without it no pod is made, and nothing but an event of the DaemonSet says so."""
    (told,) = check_daemon(Config(run_dir=tmp_path), kubelet=tmp_path)
    assert "RuntimeClass nvidia" in told.todo
    assert "describe daemonset healthd" in told.todo
    (elsewhere,) = check_daemon(Config(run_dir=tmp_path), kubelet=tmp_path / "none")
    assert elsewhere.todo.startswith("systemctl start gpu-healthd")


def test_without_a_daemon_nobody_watches(tmp_path: Path) -> None:
    found = by_part(check_daemon(Config(run_dir=tmp_path)))
    assert found["healthd"].state is DiagnosisState.BAD
    assert found["healthd"].todo


def test_a_wrong_configuration_is_the_first_thing_said(healthctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "healthd.yaml"
    path.write_text("lisen: 127.0.0.1:1\n")
    result = healthctl("doctor", "--config", str(path), "-o", "json")
    first = json.loads(result.stdout)[0]
    assert (first["part"], first["state"]) == ("configuration", "bad")
    assert "did you mean 'listen'" in first["found"]
    assert result.exit_code == 1


def test_whatever_is_not_good_says_why_and_the_doctor_gets_through(healthctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "healthd.yaml"
    path.write_text(json.dumps({"nvml": {"library": str(tmp_path / "no.so")}, "run_dir": str(tmp_path)}))
    advice = json.loads(healthctl("doctor", "--config", str(path), "-o", "json").stdout)
    assert not [each for each in advice if each["state"] != "good" and not each.get("why")]
    assert not [each for each in advice if each["state"] == "bad" and not each.get("todo")]
    assert len(advice) > len(PARTS)
    assert "no.so" in next(each for each in advice if each["part"] == "NVML")["found"]
