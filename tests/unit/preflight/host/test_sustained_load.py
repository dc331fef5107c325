"""Real work on the host under watch, and what a GPU's sensors would have said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Context, Device
from preflight.checks import sensor_watch, sustained_load
from preflight.checks.load_products import LoadSize
from preflight.checks.sensor_watch import SensorWatch
from preflight.checks.sustained_load import LoadResult, judge_sustained_load
from preflight.host import load_sensors
from preflight.host.load_sensors import LoadBurst, SensorReading, ThermalLimits
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Figure, Outcome, Result
from tests.nodes.machines import dgx
from vocabulary.hardware.machine_files import Machine

pytestmark = pytest.mark.torch

CPU = Device(name="cpu:1", torch_name="cpu", index=1, label="host")
GPU = Device(name="cuda:3", torch_name="cuda:0", index=3, label="", uuid="GPU-fake-0003")


def worked(fault: str = "", seconds: float = 0.5) -> Result:
    context = Context(device=CPU, devices=(CPU,), level="standard", seconds=seconds, fault=fault, note=lambda _: None)
    (result,) = sustained_load.check_sustained_load(context)
    return result


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small products on one thread, as a device of the host has it on two processors: two threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(sustained_load, "HOST_SIZE", LoadSize("float32", 64, 4))
    monkeypatch.setattr(sensor_watch, "READ_EVERY_S", 0.005)
    yield
    torch.set_num_threads(threads)


def figure(result: Result, name: str, setting: str = "") -> Figure:
    return next(f for f in result.figures if f.name == name and setting in f.setting)


def test_good_arithmetic_under_load_passes_with_a_rate_of_each_part() -> None:
    result = worked()
    assert result.outcome is Outcome.PASS, result.reason
    assert figure(result, "product_rate", "fp32 64, steady").value > 0
    assert figure(result, "product_rate", "fp32 64, swings").value > 0
    assert int(result.evidence["readings"]) > 0


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("throttle", "slowed down by its hardware, because it is too hot"),
        ("hot", "it reached 88 °C; thermal protection begins at 87 °C"),
        ("wrong", "1 of 4 matmul results differ from the first, in 1 word, under steady load"),
    ],
)
def test_each_fault_is_found(fault: str, says: str) -> None:
    tries = (
        worked(fault, seconds) for seconds in (0.5, 2.0, 8.0)
    )  # a busy machine may not get to read twice in the first
    result = next(result for result in tries if result.outcome is Outcome.FAIL)
    assert result.outcome is Outcome.FAIL
    assert says in result.reason
    assert result.locations[0].gpu == "cpu:1"


def test_the_slow_one_does_more_and_has_less_to_show_for_it() -> None:
    def rate(fault: str) -> float:
        return figure(worked(fault, 0.2), "product_rate", "steady").value

    assert min(rate("slow_one") for _ in range(3)) < max(rate("") for _ in range(3))  # half, and what else runs here


def test_a_driver_that_stops_answering_does_not_hold_up_the_work() -> None:
    never = threading.Event()

    def stuck(at: float, busy: bool) -> SensorReading:  # noqa: FBT001 - a sensor's signature
        never.wait()
        return SensorReading(at=at, busy=busy)

    watch = SensorWatch(stuck, patience_s=0.01)
    with watch.looking():
        pass
    assert not watch.ended
    result = sensor_watch.build_hung_result("sustained_load", GPU, watch)
    assert result.outcome is Outcome.FAIL
    assert "did not answer" in result.reason
    never.set()


def test_a_gpus_sensors_are_read_by_its_driver(driver_says: Callable[[Sequence[str]], None]) -> None:
    driver_says(
        [
            "sm_clock.3 1755",
            "power_mw.3 690000",
            "temperature.3 71",
            "memory_temperature.3 85",
            "margin.3 16",
            "throttle.3 0x44",
        ]
    )
    driver = NvmlDriver()
    sensors, limits = load_sensors.open_gpu_sensors(driver, driver.gpu("GPU-fake-0003"))
    wanted = SensorReading(
        at=1.5,
        busy=True,
        clock_mhz=1755,
        power_w=690,
        temperature_c=71,
        memory_temperature_c=85,
        margin_c=16,
        reasons=0x44,
    )
    assert sensors(1.5, True) == wanted
    assert limits == ThermalLimits(slowdown_c=87, memory_max_c=95)
    _, none, remarks = sensor_watch.open_sensors(
        Device(name="cuda:9", torch_name="cuda:0", index=9, label=""), Machine()
    )
    assert (none, len(remarks)) == (ThermalLimits(), 1)


def test_a_driver_that_reports_no_throttling_is_a_remark(driver_says: Callable[[Sequence[str]], None]) -> None:
    driver_says([])
    assert sensor_watch.open_sensors(GPU, Machine())[2] == []
    driver_says(["error_throttle 3"])
    sensors, _, remarks = sensor_watch.open_sensors(GPU, Machine())
    assert remarks == ["the driver does not report why it lowers the clock, so throttling is unknown"]
    assert sensors(0.0, True).reasons == 0


@pytest.mark.parametrize(
    ("silent", "outcome"),
    [
        ((), Outcome.PASS),
        (("temperature",), Outcome.PASS),
        (("sm_clock",), Outcome.PASS),
        (("temperature", "sm_clock"), Outcome.ERROR),
    ],
)
def test_a_gpu_of_which_the_driver_tells_neither_heat_nor_clock_does_not_pass(
    driver_says: Callable[[Sequence[str]], None], silent: tuple[str, ...], outcome: Outcome
) -> None:
    driver_says([f"error_{name} 999" for name in silent])
    sensors, limits, remarks = sensor_watch.open_sensors(GPU, Machine())
    seen = [sensors(float(at), True) for at in range(3)]
    assert [reading.temperature_c is None for reading in seen] == ["temperature" in silent] * 3
    assert [reading.clock_mhz is None for reading in seen] == ["sm_clock" in silent] * 3
    done = LoadResult(size=LoadSize("bfloat16", 8192, 32), steady=(LoadBurst(0.0, 1.0, 10),), swings=())
    result = judge_sustained_load(GPU, done, (seen, seen), limits, remarks)
    assert result.outcome is outcome
    assert ("reported neither temperature nor clock in 3 readings" in result.reason) == (outcome is Outcome.ERROR)
    assert figure(result, "product_rate").value > 0
    on_host = judge_sustained_load(CPU, done, (seen, seen), limits, remarks)
    assert on_host.outcome is Outcome.PASS


def test_a_processors_sensors_are_read_by_the_kernel(tmp_path: Path) -> None:
    for path, text in {
        "/sys/class/hwmon/hwmon0/name": "nvme",
        "/sys/class/hwmon/hwmon0/temp1_input": "99000",
        "/sys/class/hwmon/hwmon3/name": "coretemp",
        "/sys/class/hwmon/hwmon3/temp1_input": "61000",
        "/sys/class/hwmon/hwmon3/temp2_input": "64000",
        "/sys/class/hwmon/hwmon3/temp1_crit": "100000",
        "/sys/devices/system/cpu/cpu4/cpufreq/scaling_cur_freq": "2100000",
        "/sys/devices/system/cpu/cpu5/cpufreq/scaling_cur_freq": "1900000",
        "/sys/devices/system/cpu/cpu6/cpufreq/scaling_cur_freq": "800000",
    }.items():
        dgx.write(tmp_path, path, text)
    sensors, limits = load_sensors.open_host_sensors(Machine(tmp_path), [4, 5])
    assert sensors(0.0, False) == SensorReading(at=0.0, busy=False, clock_mhz=1900, temperature_c=64)
    assert limits == ThermalLimits(slowdown_c=100)
    blind, none = load_sensors.open_host_sensors(Machine(tmp_path / "none"), [0])
    assert (blind(0.0, True), none) == (SensorReading(at=0.0, busy=True), ThermalLimits())


def readings(*reasons: int, busy: bool = True, **more: float) -> list[SensorReading]:
    return [SensorReading(at=float(at), busy=busy, reasons=reason, **more) for at, reason in enumerate(reasons)]


@pytest.mark.parametrize(
    ("reasons", "fault", "remark"),
    [
        ([0] * 20, "", ""),
        ([0x4] * 20, "", ""),  # a power cap is how such GPUs are run
        ([0x1] * 20, "", ""),
        ([0x48] * 2 + [0] * 18, "because it is too hot, in 2 of 20", ""),
        ([0x48] + [0] * 19, "", ""),
        ([0x88] * 3 + [0] * 17, "brake signal of the power supply, in 3 of 20", ""),
        ([0x8] * 3 + [0] * 17, "for an unknown reason, in 3 of 20", ""),
        ([0x20] * 2 + [0] * 18, "", "for heat in 2 of 20"),
        ([0x20] * 3 + [0] * 17, "for heat in 3 of 20", ""),
    ],
)
def test_what_slows_a_gpu_down_under_load(reasons: list[int], fault: str, remark: str) -> None:
    faults, remarks, _ = load_sensors.judge_load_readings(readings(*reasons), ThermalLimits())
    assert len(faults) == bool(fault)
    assert len(remarks) == bool(remark)
    assert fault in " ".join(faults)
    assert remark in " ".join(remarks)
    idle = load_sensors.judge_load_readings(readings(*reasons, busy=False), ThermalLimits())
    assert idle[:2] == ((), ())


def test_heat_is_judged_by_the_makers_own_limits() -> None:
    hot = readings(0, 0, temperature_c=87.0, memory_temperature_c=96.0)
    faults, _, _ = load_sensors.judge_load_readings(hot, ThermalLimits(slowdown_c=87, memory_max_c=95))
    assert [fault.split(";")[0] for fault in faults] == ["it reached 87 °C", "its memory reached 96 °C"]
    assert load_sensors.judge_load_readings(hot, ThermalLimits())[0] == ()


@pytest.mark.parametrize(
    ("margin", "fault", "remark"), [(10.0, "", ""), (3.0, "", "within 3 °C"), (-2.0, "came to -2 °C", "")]
)
def test_a_gpu_that_tells_its_margin_is_judged_by_that_alone(margin: float, fault: str, remark: str) -> None:
    close = readings(0, 0, temperature_c=95.0, margin_c=margin)
    faults, remarks, _ = load_sensors.judge_load_readings(close, ThermalLimits(slowdown_c=87))
    assert (len(faults), len(remarks)) == (bool(fault), bool(remark))
    assert fault in " ".join(faults)
    assert remark in " ".join(remarks)


def test_figures_are_of_the_steady_load_once_it_is_warm() -> None:
    steady = [
        SensorReading(at=float(at), busy=True, clock_mhz=1980 if at < 10 else 1700, power_w=690) for at in range(100)
    ]
    steady += [SensorReading(at=100.0, busy=True, clock_mhz=300, power_w=690)]  # a dip no longer than a reading
    every = [*steady, SensorReading(at=101.0, busy=False, power_w=710, temperature_c=77, margin_c=10)]
    found = {f.name: (f.value, f.unit) for f in load_sensors.build_load_figures(steady, every, "bf16 8192")}
    assert found["clock_min"] == (1700, "MHz")
    assert found["power_mean"] == (690, "W")
    assert found["power_max"] == (710, "W")
    assert found["temperature_max"] == (77, "°C")
    assert found["temperature_margin_min"] == (10, "K")
    assert load_sensors.build_load_figures([], [], "") == ()


def test_a_device_that_tires_is_worth_a_remark() -> None:
    bursts = tuple(LoadBurst(float(at), 1.0 if at < 50 else 1.25, 10) for at in range(100))
    blind = "no sensor can be read: no driver"
    result = judge_sustained_load(
        GPU,
        LoadResult(size=LoadSize("bfloat16", 8192, 32), steady=bursts, swings=()),
        ([], []),
        ThermalLimits(),
        [blind],
    )
    assert result.outcome is Outcome.PASS
    assert result.evidence["sag_percent"] == 20.0
    assert result.remarks == (
        blind,
        "the last tenth of the steady load was 20 % slower than the first",
    )
    assert figure(result, "product_rate").value == pytest.approx(10 * 100 / 112.5 * 2 * 8192**3 / 1e12, rel=1e-3)


@given(st.lists(st.floats(1, 1e4), min_size=1, max_size=200))
def test_a_low_clock_is_one_that_nearly_all_readings_reach(values: list[float]) -> None:
    found = load_sensors.compute_low_percentile(values)
    assert found in values
    assert sum(value >= found for value in values) >= 0.95 * len(values)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 50)), min_size=10, max_size=60))
def test_sag_is_none_if_all_bursts_are_alike_and_has_the_sign_of_what_happened(parts: list[tuple[float, int]]) -> None:
    bursts = [LoadBurst(float(at), seconds, products) for at, (seconds, products) in enumerate(parts)]
    alike = [LoadBurst(burst.at, 0.5, 8) for burst in bursts]
    assert load_sensors.compute_sag_percent(alike) == 0
    assert load_sensors.compute_sag_percent(bursts[:9]) is None
    tenth = len(bursts) // 10
    slower = load_sensors.compute_product_rate(bursts[-tenth:]) < load_sensors.compute_product_rate(bursts[:tenth])
    sag = load_sensors.compute_sag_percent(bursts)
    assert sag is not None
    assert (sag > 0) == slower


@given(st.floats(1e-12, 1e12))
def test_a_rate_is_told_to_four_digits_and_never_as_none(value: float) -> None:
    assert round_to_four_digits(value) == pytest.approx(value, rel=1e-3)
    assert round_to_four_digits(value) > 0
