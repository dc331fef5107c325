"""The software test against a driver's library played in C and a machine that is a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Context
from preflight.checks.software import check_software
from preflight.device_comparison.version_differences import ABSENT, find_fact_differences
from preflight.host.allowed_states import ALLOW_VARIABLE
from preflight.host.configuration_states import collect_comparable_facts, list_states
from preflight.host.installed_software import InstalledGpu, InstalledSoftware
from preflight.host.memory_budget import parse_number_list
from preflight.host.software_inventory import parse_torch_build
from preflight.plan import SPECS
from preflight.results import Outcome, Result
from tests.nodes.machines import dgx
from vocabulary.hardware.machine_files import Machine

Play = Callable[[Sequence[str]], Machine]


def context(fault: str = "") -> Context:
    return Context(device=None, devices=(), level="gate", seconds=1.0, fault=fault, note=lambda _: None)


def the(fault: str, machine: Machine) -> Result:
    (result,) = check_software(context(fault), machine)
    return result


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    files = {"/proc/1/comm": "systemd", "/proc/99/comm": "nv-fabricmanage"}
    return Machine(dgx.build(tmp_path_factory.mktemp("node"), files))


@pytest.fixture
def play(driver_says: Callable[[Sequence[str]], None], node: Machine) -> Play:
    """A node of eight H200, and what `lines` change about it."""

    def with_lines(lines: Sequence[str]) -> Machine:
        driver_says(lines)
        return node

    return with_lines


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch of this machine is for processors, and the test says so; here it may."""
    monkeypatch.setenv(ALLOW_VARIABLE, "torch_without_cuda")


def test_a_good_node_tells_one_flat_dict_of_facts(play: Play) -> None:
    result = the("", play(()))
    assert result.outcome is Outcome.PASS, result.reason
    told = result.evidence
    assert (told["driver"], told["cuda_driver"], told["product"], told["gpus"]) == (
        "570.86.15",
        "12.8",
        "NVIDIA H200",
        8,
    )
    assert (told["ecc"], told["mig"], told["fabric_state"], told["fabric_manager"]) == (True, False, 3, "runs")
    assert (told["kernel"], told["microcode"]) == ("5.15.0-1071-nvidia", "0x2b000603")
    assert not [fact for fact in told if "uuid" in fact or "serial" in fact or "address" in fact]


@pytest.mark.parametrize(
    ("line", "name", "says"),
    [
        ("ecc.3 0", "ecc_off", "ECC is off on GPU 3"),
        ("mig.7 1", "mig_on", "MIG mode is enabled on GPU 7"),
        ("fabric_state.2 2", "fabric_not_joined", "GPU 2 have not joined"),
        ("fabric_status.2 5", "fabric_failed", "GPU 2 failed to join"),
        ("compute_mode.1 2", "compute_prohibited", "compute mode of GPU 1"),
        ("fail 18", "driver_mismatch", "reboot the node"),
    ],
)
def test_a_wrong_state_is_for_a_person_and_names_the_gpu(
    play: Play, monkeypatch: pytest.MonkeyPatch, line: str, name: str, says: str
) -> None:
    machine = play((line,))
    result = the("", machine)
    assert (result.outcome, result.misconfigured) == (Outcome.NOT_RUN, True)
    assert says in result.reason
    monkeypatch.setenv(ALLOW_VARIABLE, f"torch_without_cuda, {name}")
    allowed = the("", machine)
    assert allowed.outcome is Outcome.PASS, allowed.reason
    assert any(says in remark for remark in allowed.remarks)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("persistence.0 0", "persistence mode is off on GPU 0"),
        ("ecc_pending.4 0", "ECC mode of GPU 4 changes"),
        ("power_limit_mw.5 500000", "the power limit of GPU 5"),
        (
            "vbios.6 96.00.74.00.01",
            "vbios differs between GPUs: 96.00.A0.00.01 (GPU 0, 1, 2, 3, 4, 5, 7), 96.00.74.00.01 (GPU 6)",
        ),
    ],
)
def test_what_is_only_odd_is_a_remark(play: Play, line: str, says: str) -> None:
    result = the("", play((line,)))
    assert result.outcome is Outcome.PASS
    assert any(says in remark for remark in result.remarks), result.remarks


@pytest.mark.parametrize("fault", SPECS["software"].faults)
def test_every_injected_fault_is_found(play: Play, fault: str) -> None:
    assert the(fault, play(())).misconfigured


def test_gpus_without_a_driver_and_a_driver_of_two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", str(tmp_path / "none.so"))
    result = the("", Machine(dgx.build(tmp_path / "root")))
    assert result.misconfigured
    assert "no driver answers: HEALTHD_NVML_LIBRARY names a library that cannot be loaded" in result.reason
    assert the("", Machine(tmp_path / "nothing")).outcome is Outcome.PASS
    two = InstalledSoftware(machine={"driver": "570.86.15", "driver_module": "570.124.06"})
    assert [state.name for state in list_states(two)] == ["driver_mismatch"]


def test_the_module_of_the_kernel_is_read_as_the_driver_writes_it(play: Play, tmp_path: Path) -> None:
    play(())
    dgx.write(
        tmp_path,
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs@x)\nGCC version: 12.2.0",
    )
    assert the("", Machine(tmp_path)).evidence["driver_module"] == "570.86.15"


def switched(joined: int | None, runs: bool | None) -> InstalledSoftware:  # noqa: FBT001 - a table below names them
    return InstalledSoftware(
        machine={}, gpus=(InstalledGpu(index=0, fabric_state=joined),), switches_on_bus=4, fabric_manager=runs
    )


@pytest.mark.parametrize(
    ("software", "names"),
    [
        (switched(3, True), []),
        (switched(3, None), []),
        (switched(None, None), [("fabric_manager_unseen", False)]),
        (switched(None, False), [("fabric_manager_down", True)]),
        (switched(3, False), [("fabric_manager_down", False)]),
        (switched(1, False), [("fabric_not_joined", True)]),
    ],
)
def test_the_fabric_has_two_witnesses(software: InstalledSoftware, names: list[tuple[str, bool]]) -> None:
    assert [(state.name, state.wrong) for state in list_states(software)] == names


def test_a_torch_newer_than_the_driver_is_said_and_a_newer_minor_is_not() -> None:
    def node(built: str) -> InstalledSoftware:
        facts: dict[str, str | int] = {"torch": "2", "torch_cuda": built, "cuda_driver": "12.8"}
        return InstalledSoftware(machine=facts, gpus=(InstalledGpu(index=0),), gpus_on_bus=1)

    assert [state.name for state in list_states(node("13.0"))] == ["torch_too_new"]
    assert list_states(node("12.9")) == ()
    assert list_states(msgspec.structs.replace(node("13.0"), gpus_on_bus=0)) == ()
    desktop = InstalledSoftware(machine={}, gpus=(InstalledGpu(index=0, product="NVIDIA GeForce RTX 4090", ecc=False),))
    assert list_states(desktop) == ()


def test_what_torch_is_stands_in_a_file() -> None:
    text = "from typing import Optional\n__version__ = '2.11.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    assert parse_torch_build(text) == {"torch": "2.11.0+cu128", "torch_cuda": "12.8"}
    assert parse_torch_build("cuda: Optional[str] = None\n") == {}


def test_a_value_that_only_some_gpus_have_is_told_with_their_numbers() -> None:
    gpus = (InstalledGpu(index=0, ecc=True), InstalledGpu(index=1))
    assert collect_comparable_facts(InstalledSoftware(machine={}, gpus=gpus))["ecc"] == "True (GPU 0)"


def test_the_odd_nodes_are_named_and_without_a_majority_nobody_is_odd() -> None:
    group = {f"n{i}": {"driver": "570", "os": "a"} for i in range(4)} | {"n9": {"driver": "560"}}
    driver, os = find_fact_differences(group)
    assert (driver.fact, driver.common, driver.others, driver.matters) == ("driver", "570", {"560": ("n9",)}, True)
    assert (os.fact, os.others, os.matters) == ("os", {ABSENT: ("n9",)}, False)
    assert str(driver) == "driver: 570 on most, 560 on n9"
    (tie,) = find_fact_differences({"a": {"driver": "1"}, "b": {"driver": "2"}})
    assert (tie.common, tie.others) == ("", {"1": ("a",), "2": ("b",)})


@given(st.dictionaries(st.text(min_size=1), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), max_size=6))
def test_equal_nodes_do_not_differ_and_every_odd_one_is_named_once(
    group: dict[str, dict[str, str | int | float | bool]],
) -> None:
    for difference in find_fact_differences(group):
        named = [node for nodes in difference.others.values() for node in nodes]
        assert len(named) == len(set(named))
        for value, nodes in difference.others.items():
            assert all(str(group[node].get(difference.fact, ABSENT)) == value for node in nodes)
        rest = set(group) - set(named)
        assert all(str(group[node].get(difference.fact, ABSENT)) == difference.common for node in rest)
    same = {node: {"a": 1} for node in group}
    assert find_fact_differences(same) == ()


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-3,8", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("x", ()), ("0-", ())]
)
def test_lists_of_numbers_as_the_kernel_writes_them(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_number_list(text) == numbers


def test_an_empty_machine_tells_what_python_knows(tmp_path: Path) -> None:
    told = the("", Machine(tmp_path)).evidence
    assert "kernel" not in told
    assert msgspec.json.encode(told)
