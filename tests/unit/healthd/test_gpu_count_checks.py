"""Whether a node has all its GPUs: the configured count, and the PCI bus against what NVML lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.gpu_count_checks import CHECK, GpuCountCheck, Limits
from healthd.collectors.machine_access import MachineAccess
from healthd.collectors.pcie import PcieHop, PcieSample, read_pcie
from healthd.findings.facts import Clear, Fact, Moment, Raise
from healthd.findings.finding_ledger import FindingLedger
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.samples.nvml import Inventory
from healthd.thresholds import ThresholdsError, load_thresholds
from tests.nodes.machines import dgx
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

PRODUCT = "NVIDIA H100 80GB HBM3"
NOW = Moment(1_700_000_000.0, 5.0)


def pci(number: int) -> str:
    return f"0000:1{number}:00.0"


def listed(*numbers: int, count: int | None = None, left_out: tuple[int, ...] = ()) -> Inventory:
    gpus = tuple(Gpu(index, f"GPU-{number}", pci(number), PRODUCT) for index, number in enumerate(numbers))
    return Inventory("d", len(gpus) if count is None else count, gpus, left_out=left_out)


def bus(*numbers: int, **drivers: str) -> list[PcieHop]:
    held = dict.fromkeys(map(str, numbers), "nvidia") | {name[1:]: driver for name, driver in drivers.items()}
    nic = PcieHop("0000:90:00.0", "nic", *[None] * 7)
    return [nic, *(PcieHop(pci(int(number)), "gpu", *[None] * 7, driver=driver) for number, driver in held.items())]


def check(configured: int | None = None, **products: int) -> GpuCountCheck:
    return GpuCountCheck(configured, lambda product: Limits(expected=products.get((product.split() or [""])[-1], 0)))


def raised(facts: list[Fact] | tuple[Fact, ...]) -> dict[str, str]:
    assert all(fact.check == CHECK for fact in facts)
    assert all(fact.severity is Severity.ERROR for fact in facts if isinstance(fact, Raise)), "it takes no new work"
    return {fact.code: fact.summary for fact in facts if isinstance(fact, Raise)}


def asked_twice(judge: GpuCountCheck, hops: list[PcieHop], inventory: Inventory) -> dict[str, str]:
    """The first look asks the driver to enumerate anew; the second, of a new inventory, speaks."""
    judge.judge_bus(hops, inventory, (), 1.0)
    again = Inventory(inventory.driver, inventory.count, inventory.gpus, left_out=inventory.left_out)
    return raised(judge.judge_bus(hops, again, (), 31.0).facts)


def test_fewer_than_configured_is_a_fault_also_on_a_fresh_node() -> None:
    short = check(8).judge_inventory(listed(*range(7)), 1.0)
    assert raised(short)["below_configured"].startswith("NVML lists 7 of 8 GPUs")
    assert isinstance(check(8).judge_inventory(listed(*range(8)), 1.0)[0], Clear)
    assert raised(check(8).judge_inventory(listed(), 1.0)), "none at all"
    assert raised(check().judge_inventory(listed(*range(7)), 1.0)) == {}, "nothing was configured"
    assert raised(check(0).judge_inventory(listed(), 1.0)) == {}


def test_a_gpu_that_does_not_answer_or_is_left_out_is_not_missing() -> None:
    assert raised(check(8).judge_inventory(listed(*range(7), count=8), 1.0)) == {}
    assert raised(check(8).judge_inventory(listed(*range(7), count=8, left_out=(7,)), 1.0)) == {}
    assert raised(check(HBM3=8).judge_inventory(listed(*range(7), count=8, left_out=(7,)), 1.0)) == {}


def test_a_product_has_its_own_count() -> None:
    short = raised(check(HBM3=8).judge_inventory(listed(*range(7)), 1.0))
    assert short["below_configured"].startswith(f"NVML lists 7 of 8 {PRODUCT}")
    assert raised(check(4, HBM3=8).judge_inventory(listed(*range(4)), 1.0)) == {}, (
        "the node's own count stands above it"
    )
    thresholds = load_thresholds({"skus": {"H100": {"gpu_count": {"expected": 8}}}})
    assert thresholds.section(CHECK, Limits, PRODUCT).expected == 8
    assert thresholds.section(CHECK, Limits, "NVIDIA A100").expected == 0
    with pytest.raises(ThresholdsError):
        GpuCountCheck(None, lambda product: load_thresholds({"gpu_count": {"x": 1}}).section(CHECK, Limits, product))


def test_a_passed_preflight_does_not_accept_fewer_than_configured() -> None:
    ledger = FindingLedger("n1", "b")
    watch = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}), check(8))
    watch.take(listed(*range(8)), NOW)
    watch.take(listed(*range(7)), NOW)
    watch.accept_present(NOW.wall)
    assert len(watch.expected) == 8
    assert {f.kind for f in ledger.active} == {"gpu_presence/vanished", "gpu_count/below_configured"}
    unconfigured = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}), check())
    unconfigured.take(listed(*range(8)), NOW)
    unconfigured.take(listed(*range(7)), NOW)
    unconfigured.accept_present(NOW.wall)
    assert len(unconfigured.expected) == 7


def test_the_bus_has_a_gpu_that_nvml_does_not_list() -> None:
    found = asked_twice(check(), bus(*range(8)), listed(*range(7)))
    assert "the NVIDIA driver holds 0000:17:00.0, but NVML does not list it" in found["not_enumerated"]
    found = asked_twice(check(), bus(*range(7), _7=""), listed(*range(7)))
    assert "does not hold 0000:17:00.0 (no driver)" in found["not_bound"]
    assert "vfio-pci" in found["not_bound"]
    assert "(nouveau)" in asked_twice(check(), bus(*range(7), _7="nouveau"), listed(*range(7)))["not_bound"]
    assert raised(check().judge_bus(bus(0), None, (), 1.0).facts) == {}, "without NVML nothing is compared"


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace_gpu_vfio_pci", "pci-stub", "xen_pciback", "nvidia-vgpu-vfio"])
def test_a_gpu_given_to_a_virtual_machine_is_intended(driver: str) -> None:
    assert asked_twice(check(), bus(*range(7), _7=driver), listed(*range(7))) == {}
    more = asked_twice(check(), bus(*range(6), _6="", _7=driver), listed(*range(6)))
    assert "1 more passed to virtual machines" in more["not_bound"]


def test_a_configured_count_that_is_met_says_what_is_intended() -> None:
    assert asked_twice(check(7), bus(*range(7), _7=""), listed(*range(7))) == {}
    assert set(asked_twice(check(8), bus(*range(7), _7=""), listed(*range(7)))) == {"not_bound"}


def test_a_gpu_that_is_enumerated_but_silent_or_left_out_is_not_called_missing() -> None:
    assert asked_twice(check(), bus(*range(8)), listed(*range(7), count=8)) == {}
    judge, left_out = check(), listed(*range(7), count=8, left_out=(7,))
    judged = judge.judge_bus(bus(*range(8)), left_out, [pci(7)], 1.0)
    assert (raised(judged.facts), judged.renew) == ({}, False)
    both = listed(*range(6), count=7, left_out=(6,))
    assert judge.judge_bus(bus(*range(8)), both, [pci(6)], 3.0).renew
    again = listed(*range(6), count=7, left_out=(6,))
    assert pci(7) in raised(judge.judge_bus(bus(*range(8)), again, [pci(6)], 4.0).facts)["not_enumerated"]


def test_a_difference_asks_for_a_new_inventory_once_and_speaks_only_of_that() -> None:
    judge, before = check(), listed(*range(7))
    assert judge.judge_bus(bus(*range(7)), before, (), 0.0).renew is False
    assert judge.judge_bus(bus(*range(8)), before, (), 30.0) == ((), True), "a GPU came back"
    assert judge.judge_bus(bus(*range(8)), before, (), 60.0) == ((), False), "the driver has not answered yet"
    after = judge.judge_bus(bus(*range(8)), listed(*range(8)), (), 90.0)
    assert after.renew is False
    assert all(isinstance(fact, Clear) for fact in after.facts)
    assert judge.judge_bus(bus(*range(7)), listed(*range(8)), (), 120.0).renew, "a GPU was taken out"
    assert judge.judge_bus(bus(*range(7)), listed(*range(8)), (), 150.0).renew is False


def test_another_machines_bus_is_not_compared() -> None:
    assert check().judge_bus([PcieHop("0000:99:00.0", "gpu", *[None] * 7)], listed(0, 1), (), 1.0) == ((), False)
    assert asked_twice(check(), bus(0), listed()) != {}, "NVML lists none at all"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["nvidia", "", "vfio-pci", "nouveau"])), max_size=10),
    st.lists(st.integers(0, 9), unique=True, max_size=10),
    st.integers(0, 12),
)
def test_any_bus_can_be_judged(devices: list[tuple[int, str]], numbers: list[int], more: int) -> None:
    hops = [PcieHop(pci(number), "gpu", *[None] * 7, driver=driver) for number, driver in dict(devices).items()]
    inventory = listed(*numbers, count=len(numbers) + more)
    for _ in range(3):
        judged = check().judge_bus(hops, inventory, (), 1.0)
        assert judged.renew is False or not judged.facts


def test_the_collector_tells_what_holds_each_gpu_and_passes_over_virtual_functions(tmp_path: Path) -> None:
    root = dgx.build(tmp_path)
    devices = root / "sys/bus/pci/devices"
    bound, given_away, free, virtual = map(dgx.gpu_address, range(4))
    dgx.bind(root, f"/sys/bus/pci/devices/{given_away}", "vfio-pci")
    (devices / free / "driver").unlink()
    (devices / virtual / "physfn").symlink_to(devices / free)
    sample = read_pcie(MachineAccess(str(root)), {})
    held = {hop.pci: hop.driver for hop in sample.hops if hop.kind == "gpu"}
    assert (held[bound], held[given_away], held[free]) == ("nvidia", "vfio-pci", "")
    assert virtual not in held


def test_the_watch_asks_for_a_new_inventory() -> None:
    ledger = FindingLedger("n1", "b")
    watch = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}), check())
    watch.take(listed(*range(7)), NOW)
    watch.take_bus(PcieSample(tuple(bus(*range(8))), ()), NOW)
    assert (watch.take_renewal(), watch.take_renewal()) == (True, False)
    watch.take(listed(*range(7)), NOW)
    watch.take_bus(PcieSample(tuple(bus(*range(8))), ()), NOW)
    assert [f.kind for f in ledger.active] == ["gpu_count/not_enumerated"]
    watch.take(listed(*range(8)), NOW)
    watch.take_bus(PcieSample(tuple(bus(*range(8))), ()), NOW)
    assert ledger.active == ()


def test_the_watch_says_which_gpus_are_left_out() -> None:
    ledger = FindingLedger("n1", "b")
    watch = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}), check())
    watch.take(listed(*range(8)), NOW)
    watch.take(listed(*range(7), count=8, left_out=(7,)), NOW)
    watch.take_bus(PcieSample(tuple(bus(*range(8))), ()), NOW)
    assert not watch.take_renewal(), "the driver enumerated it, and hangs on it"
    assert not any(f.check == CHECK for f in ledger.active)
