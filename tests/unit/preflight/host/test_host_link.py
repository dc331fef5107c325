"""The way between host and device: real copies within the host, and a GPU's link as driver and kernel tell it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Context, Device
from preflight.checks import host_link
from preflight.host import gpu_pcie_link
from preflight.host.gpu_pcie_link import PcieLink
from preflight.host.measurement_turns import TurnQueue
from preflight.plan import SPECS, compute_watchdog_s
from preflight.results import Outcome, Result
from tests.nodes.machines import dgx
from vocabulary.hardware.machine_files import Machine

pytestmark = pytest.mark.torch

DEVICES = tuple(Device(name=f"cpu:{index}", torch_name="cpu", index=index, label="host") for index in range(2))
Say = Callable[[Sequence[str]], None]


def both(fault: str = "") -> list[Result]:
    """Both devices at once, as a run has them; the fault on the last one."""

    def one(device: Device) -> Result:
        mine = fault if device is DEVICES[-1] else ""
        context = Context(device=device, devices=DEVICES, level="gate", seconds=0.1, fault=mine, note=lambda _: None)
        (result,) = host_link.check_host_link(context)
        return result

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, DEVICES))


@pytest.mark.parametrize("times", [8])
def test_two_devices_never_miss_each_other(times: int) -> None:
    for _ in range(times):
        assert all(result.remarks == () for result in both())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_link, "HOST_BYTES", 1 << 20)


def test_good_ways_pass_with_a_rate_each_way_and_both_ways_at_once() -> None:
    affinity = os.sched_getaffinity(0)
    for result in both():
        assert result.outcome is Outcome.PASS, result.reason
        assert [figure.name for figure in result.figures] == ["h2d_rate", "d2h_rate", "both_ways_rate"]
        assert all(figure.value > 0 and figure.setting == "host 1 MiB" for figure in result.figures)
        assert result.remarks == ()
        assert int(result.evidence["rounds"]) >= 1
    assert os.sched_getaffinity(0) == affinity


@pytest.mark.parametrize(
    ("fault", "says"), [("narrow", "8 of 16 lanes"), ("corrupt", "1 of 1048576 bytes arrived wrong")]
)
def test_each_fault_is_found_on_the_device_that_has_it(fault: str, says: str) -> None:
    good, bad = both(fault)
    assert (good.outcome, bad.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert says in bad.reason
    assert {location.gpu for location in bad.locations} == {"cpu:1"}
    if fault == "corrupt":
        assert (bad.locations[0].gpu, bad.locations[0].address) == ("cpu:1", f"{(1 << 19) + 77:#x}")


def test_a_slow_way_shows_in_its_rate() -> None:
    pairs = [[result.figures[0].value for result in both("slow")] for _ in range(3)]
    assert min(slow for _, slow in pairs) < max(good for good, _ in pairs)  # ten times, and what else runs here


def test_data_that_went_wrong_on_the_device_itself_is_found_though_it_came_home_right() -> None:
    context = Context(device=DEVICES[0], devices=DEVICES[:1], level="gate", seconds=0.05, fault="", note=lambda _: None)
    place = host_link.DevicePlace(Machine(), DEVICES[0], "")
    with TurnQueue(0, 1, "alone") as turns:
        copies = host_link._CopyRun(context, DEVICES[0], place, turns)
        copies._buffers()
        assert copies._round_trip() is None
        copies._there[99] ^= 4
        wrong = copies._arrived("both ways at once")
        assert wrong is not None
        assert (wrong.count, wrong.first) == (1, (99,))
        assert copies._round_trip() is None
        copies._back[98] ^= 4
        home = copies._arrived("there and back")
    assert home is not None
    assert home.first == (98,)


@pytest.mark.parametrize(
    ("lies", "says"), [(0, "to the device"), (1, "to the host"), (2, "both ways at once"), (None, "")]
)
def test_a_copy_that_moves_half_of_its_bytes_while_it_is_timed_has_no_rate(
    monkeypatch: pytest.MonkeyPatch, lies: int | None, says: str
) -> None:
    timed: list[float] = []
    rate = host_link._CopyRun._rate

    def half(copies: host_link._CopyRun, ways: tuple[Callable[[], object], ...], seconds: float) -> float:
        whole = {name: getattr(copies, name) for name in ("_there", "_back", "_sent", "_returning")}
        for name, tensor in whole.items() if len(timed) == lies else ():
            setattr(copies, name, tensor[: len(tensor) // 2])
        timed.append(rate(copies, ways, seconds))
        vars(copies).update(whole)
        return timed[-1]

    monkeypatch.setattr(host_link._CopyRun, "_rate", half)
    context = Context(device=DEVICES[0], devices=DEVICES[:1], level="gate", seconds=0.05, fault="", note=lambda _: None)
    (result,) = host_link.check_host_link(context)
    assert result.outcome is (Outcome.PASS if lies is None else Outcome.FAIL)
    assert len(result.figures) == (3 if lies is None else lies)
    if lies is not None:
        assert (
            f"524288 of 1048576 bytes arrived wrong ({says}, during the timed copies), first at 0x80000"
            in result.reason
        )


class Nobody:
    """Turns with others that never come and never end: each wait takes all the patience there is, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited: list[float] = []

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def gather(self, patience_s: float) -> bool:
        self.waited.append(patience_s)
        self.now += patience_s
        return False

    scatter = gather

    @contextmanager
    def turn(self, patience_s: float) -> Iterator[bool]:
        yield self.gather(patience_s)


def test_who_waits_for_others_that_hang_is_done_before_its_own_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody, spec = Nobody(), SPECS["host_link"]
    monkeypatch.setattr(host_link, "_clock", nobody.clock)
    context = Context(device=DEVICES[0], devices=DEVICES, level="gate", seconds=1.0, fault="", note=lambda _: None)
    copies = host_link._CopyRun(
        context, DEVICES[0], host_link.DevicePlace(Machine(), DEVICES[0], ""), cast("TurnQueue", nobody)
    )
    result = copies.result()
    assert result.outcome is Outcome.PASS
    assert "another device missed the barrier" in result.remarks[0]
    assert len(nobody.waited) == 3
    assert nobody.now + 2 * host_link.DRIVER_PATIENCE_S <= compute_watchdog_s(spec, "gate") - 3


GPU = Device(name="cuda:3", torch_name="cuda:0", index=3, label="", uuid="GPU-fake-0003")
ADDRESS = "0000:13:00.0"


def gpu_link(root: Path, fault: str = "", **files: str) -> PcieLink:
    at = dgx.device(root, 1, ADDRESS, vendor="0x10de", kind="0x030200", speed="32.0 GT/s PCIe")
    dgx.write(root, f"{at}/numa_node", "1")
    dgx.write(root, f"{at}/local_cpulist", "48-95,144")
    for name, text in files.items():
        folder, _, file = name.partition("__")
        dgx.write(root, f"{at if folder == 'device' else at.rpartition('/')[0]}/{file}", text)
    return host_link.DevicePlace(Machine(root), GPU, fault).link()


def test_driver_and_kernel_tell_of_the_link(driver_says: Say, tmp_path: Path) -> None:
    driver_says(["pcie_generation.3 1", "pcie_width.3 8", "pcie_replays.3 5"])
    link = gpu_link(tmp_path)
    assert (link.address, link.width, link.width_max, link.generation, link.generation_max) == (ADDRESS, 8, 16, 1, 5)
    assert (link.replays, link.corrected, link.uncorrected, link.numa) == (5, 0, 0, 1)
    assert (link.cpus[0], link.cpus[-1], len(link.cpus)) == (48, 144, 49)
    told = host_link.build_link_evidence(link, link)
    assert (told["pcie_generation_max"], told["pcie_width_max"], told["numa_node"]) == (5, 16, 1)


def test_a_counter_that_the_driver_lacks_is_a_remark(driver_says: Say, tmp_path: Path) -> None:
    driver_says(["error_pcie_replays 3"])
    link = gpu_link(tmp_path)
    assert gpu_pcie_link.judge_pcie_link(link, link, link) == (
        (),
        ("the driver does not report replays of the PCIe link",),
    )
    assert gpu_pcie_link.judge_pcie_link(PcieLink(), PcieLink(), PcieLink()) == ((), ())  # no GPU, no counter


def test_the_slot_bounds_what_can_be_asked_of_the_link(driver_says: Say, tmp_path: Path) -> None:
    driver_says(["pcie_width.3 8", "pcie_generation.3 4"])
    link = gpu_link(tmp_path, slot__max_link_width="8", slot__max_link_speed="16.0 GT/s PCIe")
    assert (link.width_max, link.device_width_max, link.generation_max) == (8, 16, 4)
    assert gpu_pcie_link.judge_pcie_link(link, link, link) == (
        (),
        ("the PCIe link has 8 lanes, all that the slot has; the GPU supports 16",),
    )


def test_a_virtual_machine_that_shows_no_link_is_unknown_not_wrong(driver_says: Say, tmp_path: Path) -> None:
    driver_says(
        ["error_pcie_width 3", "error_pcie_width_max 3", "error_pcie_generation 3", "error_pcie_generation_max 3"]
    )
    link = gpu_link(tmp_path, device__current_link_speed="Unknown", device__current_link_width="0")
    assert (link.width, link.generation) == (None, None)
    assert gpu_pcie_link.judge_pcie_link(link, link, link)[0] == ()
    absent = host_link.DevicePlace(Machine(tmp_path / "none"), GPU, "")
    assert absent.link().width is None


def test_without_a_driver_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", str(tmp_path / "none.so"))
    place = host_link.DevicePlace(Machine(tmp_path), GPU, "")
    assert place.link() == PcieLink()
    assert "width and errors of the link are unknown" in place.remarks[0]


def test_processors_near_the_device_are_used_and_where_none_may_be_that_is_said(
    driver_says: Say, tmp_path: Path
) -> None:
    del driver_says
    gpu_link(tmp_path)
    mine = os.sched_getaffinity(0)
    context = Context(device=GPU, devices=(GPU,), level="gate", seconds=0.1, fault="", note=lambda _: None)

    def beside(cpulist: str) -> tuple[set[int], list[str]]:
        path = next((tmp_path / "sys/devices").rglob(f"{ADDRESS}/local_cpulist"))
        path.write_text(cpulist)
        with host_link.run_near_device(Machine(tmp_path), GPU, context) as place:
            return os.sched_getaffinity(0), place.remarks

    assert beside(str(max(mine))) == ({max(mine)}, [])
    assert os.sched_getaffinity(0) == mine
    used, remarks = beside("4000-4001")
    assert used == mine
    assert "no CPU near the device is allowed" in remarks[0]


WIDE = PcieLink(
    width=16, width_max=16, device_width_max=16, generation=5, generation_max=5, replays=0, corrected=0, uncorrected=0
)


def changed(**fields: int) -> PcieLink:
    return PcieLink(**{name: fields.get(name, getattr(WIDE, name)) for name in WIDE.__struct_fields__})


@pytest.mark.parametrize(
    ("busy", "after", "fault", "remark"),
    [
        (WIDE, WIDE, "", ""),
        (changed(width=8), WIDE, "8 of 16 lanes", ""),
        (changed(generation=4), WIDE, "generation 4 of 5 under load", ""),
        (WIDE, changed(replays=80), "", "replayed 80 packets"),
        (WIDE, changed(replays=81), "replayed 81 packets", ""),
        (WIDE, changed(corrected=2), "", "2 corrected PCIe errors"),
        (WIDE, changed(uncorrected=1), "1 uncorrectable PCIe errors", ""),
    ],
)
def test_what_a_link_under_load_must_be(busy: PcieLink, after: PcieLink, fault: str, remark: str) -> None:
    faults, remarks = gpu_pcie_link.judge_pcie_link(changed(generation=1), busy, after)
    assert bool(faults) == bool(fault)
    assert bool(remarks) == bool(remark)
    assert fault in " ".join(faults)
    assert remark in " ".join(remarks)


@given(st.integers(0, 16), st.integers(0, 16), st.integers(0, 6), st.integers(0, 6))
def test_of_two_readings_the_better_one_counts(width: int, other: int, generation: int, second: int) -> None:
    found = gpu_pcie_link.merge_best_readings(
        PcieLink(width=width or None, generation=generation or None),
        PcieLink(width=other or None, generation=second or None),
    )
    assert (found.width or 0, found.generation or 0) == (max(width, other), max(generation, second))


def test_nobody_begins_before_all_have_come_or_ends_before_all_are_done() -> None:
    order: list[str] = []

    def comer(index: int) -> bool:
        with TurnQueue(index, 3, f"all-{os.getpid()}") as turns:
            order.append("comes")
            met = turns.gather(60.0)
            order.append("measures")
            return turns.scatter(60.0) and met

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(comer, range(3))) == [True, True, True]
    assert order == ["comes"] * 3 + ["measures"] * 3


def test_one_who_never_comes_is_not_waited_for_longer_than_patience_lasts_and_is_then_taken_as_done() -> None:
    with TurnQueue(0, 2, f"alone-{os.getpid()}") as turns:
        assert not turns.gather(0.01)
        assert turns.scatter(3600.0)
    with TurnQueue(0, 2, f"stuck-{os.getpid()}") as turns, TurnQueue(1, 2, f"stuck-{os.getpid()}") as other:
        other._busy = other._bound("busy-1")
        assert not turns.gather(0.01)
        assert not turns.scatter(0.01)


def test_only_one_at_a_time_has_the_turn() -> None:
    inside, most = [], []

    def taker(index: int) -> None:
        with TurnQueue(index, 8, f"turn-{os.getpid()}") as turns, turns.turn(60.0) as had:
            assert had
            inside.append(index)
            most.append(len(inside))
            time.sleep(0.001)
            inside.remove(index)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(taker, range(8)))
    assert most == [1] * 8


def test_the_turn_of_a_killed_process_is_free_again() -> None:
    program = (
        "import os, time\n"
        "from preflight.host.measurement_turns import TurnQueue\n"
        "with TurnQueue(0, 2, f'killed-{os.getppid()}') as turns, turns.turn(1.0) as had:\n"
        "    print(had, flush=True)\n"
        "    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]) as process:
        assert process.stdout
        assert process.stdout.readline() == b"True\n"
        with TurnQueue(1, 2, f"killed-{os.getpid()}") as turns, turns.turn(0.01) as had:
            assert not had
        process.send_signal(signal.SIGKILL)
    with TurnQueue(1, 2, f"killed-{os.getpid()}") as turns, turns.turn(30.0) as had:
        assert had


def test_every_thread_that_copies_has_selected_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    selected: dict[int, str] = {}
    copied: dict[int, str] = {}

    class Stream:
        def synchronize(self) -> None:
            pass

    @contextmanager
    def stream(_: object) -> Iterator[None]:
        thread = threading.get_ident()
        copied[thread] = selected.get(thread, "cuda:0, where a new thread starts")
        yield

    monkeypatch.setattr(torch.cuda, "set_device", lambda name: selected.update({threading.get_ident(): name}))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    device = Device(name="cuda:3", torch_name="cuda:3", index=3, label="GPU 3")
    context = Context(device=device, devices=(device,), level="gate", seconds=0.1, fault="", note=lambda _: None)
    monkeypatch.setattr(host_link.DevicePlace, "link", lambda _: PcieLink())
    run = host_link._CopyRun(context, device, host_link.DevicePlace(Machine(), DEVICES[0], ""), TurnQueue(3, 1))
    run._sides = [Stream(), Stream()]
    run._rate((lambda: None, lambda: None), 0.0)
    assert len(copied) == 2
    assert set(copied.values()) == {"cuda:3"}
