"""Sensor readings under load, their figures, and their faults. Pure except for reading."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from preflight.host.nvml_driver import NvmlDriver
from preflight.results import Evidence, Figure
from vocabulary.hardware.machine_files import Machine
from vocabulary.text.plurals import format_count

WARM_SHARE = 0.1  # of the load's duration, at its start, until clocks and temperatures have settled
LOW_PERCENT = 5  # the clock except for the shortest dips
HEAT_PERCENT_MAX = 10.0  # maximum share of readings under load with thermal throttling by the driver
MARGIN_C = 3  # too little for a hot summer or dust; well-cooled GPUs keep ten and more
HARDWARE_READINGS_MIN = 2  # a single one may be the edge of a swing
_MEMORY_TEMPERATURE_FIELD = 82
_SLOWDOWN, _MEMORY_MAX = 1, 2  # nvmlTemperatureThresholds_t

HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_BRAKE, POWER_CAP = 0x8, 0x20, 0x40, 0x80, 0x4  # nvmlClocksEventReasons


class SensorReading(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a device: `at` in seconds since the load began; None without such a sensor.

    `margin_c` is the remaining margin until the driver throttles: newer GPUs report it instead of a limit.
    """

    at: float
    busy: bool
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    margin_c: float | None = None
    reasons: int = 0


class ThermalLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The temperatures from which the device protects itself; None if unknown."""

    slowdown_c: float | None = None
    memory_max_c: float | None = None


Sensors = Callable[[float, bool], SensorReading]


def open_gpu_sensors(driver: NvmlDriver, gpu: Any) -> tuple[Sensors, ThermalLimits]:
    """A GPU's sensors through its driver."""
    library = driver.library

    def read(at: float, busy: bool) -> SensorReading:  # noqa: FBT001 - a reading's own fields, in their order
        power = driver.number("DeviceGetPowerUsage", gpu)
        return SensorReading(
            at=at,
            busy=busy,
            clock_mhz=driver.number("DeviceGetClockInfo", gpu, library.NVML_CLOCK_SM),
            power_w=None if power is None else power / 1000,
            temperature_c=driver.number("DeviceGetTemperature", gpu, library.NVML_TEMPERATURE_GPU),
            memory_temperature_c=driver.field(gpu, _MEMORY_TEMPERATURE_FIELD) or None,
            margin_c=driver.number("DeviceGetMarginTemperature", gpu),
            reasons=_read_slowdown_reasons(driver, gpu) or 0,
        )

    return read, ThermalLimits(
        slowdown_c=driver.number("DeviceGetTemperatureThreshold", gpu, _SLOWDOWN),
        memory_max_c=driver.number("DeviceGetTemperatureThreshold", gpu, _MEMORY_MAX),
    )


def explain_missing_reasons(driver: NvmlDriver, gpu: Any) -> str:
    """Why slowdowns of this GPU cannot be seen; empty if the driver reports them."""
    if _read_slowdown_reasons(driver, gpu) is not None:
        return ""
    return "the driver does not report why it lowers the clock, so throttling is unknown"


def _read_slowdown_reasons(driver: NvmlDriver, gpu: Any) -> int | None:
    names = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")  # the second: older drivers
    return next((found for name in names if (found := driver.number(name, gpu)) is not None), None)


def open_host_sensors(machine: Machine, cpus: Iterable[int]) -> tuple[Sensors, ThermalLimits]:
    """The CPU's sensors: the hottest core and the slowest clock of `cpus`, as far as the kernel shows them."""
    chips = [f"/sys/class/hwmon/{name}" for name in machine.names("/sys/class/hwmon")]
    chips = [chip for chip in chips if machine.text(f"{chip}/name") in ("coretemp", "k10temp", "zenpower")]
    inputs = [f"{chip}/{name}" for chip in chips for name in machine.names(chip) if name.endswith("_input")]
    inputs = [path for path in inputs if path.rpartition("/")[2].startswith("temp")]
    clocks = [f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus]
    limits = [value for path in inputs if (value := machine.number(path.replace("_input", "_crit")))]

    def read(at: float, busy: bool) -> SensorReading:  # noqa: FBT001 - same
        heat = [value for path in inputs if (value := machine.number(path)) is not None]
        speed = [value for path in clocks if (value := machine.number(path)) is not None]
        return SensorReading(
            at=at,
            busy=busy,
            clock_mhz=min(speed) / 1000 if speed else None,
            temperature_c=max(heat) / 1000 if heat else None,
        )

    return read, ThermalLimits(slowdown_c=min(limits) / 1000 if limits else None)


def select_warm_readings(readings: Sequence[SensorReading]) -> list[SensorReading]:
    """The readings under load after warm-up; all under load if that leaves none."""
    busy = [reading for reading in readings if reading.busy]
    if not busy:
        return []
    from_s = busy[0].at + WARM_SHARE * (busy[-1].at - busy[0].at)
    return [reading for reading in busy if reading.at >= from_s]


def build_load_figures(
    steady: Sequence[SensorReading], every: Sequence[SensorReading], setting: str
) -> tuple[Figure, ...]:
    """Mean power and low clock of the `steady` load, and the maximum temperature and power of `every` reading."""
    calm = select_warm_readings(steady)

    def values(name: str, of: Sequence[SensorReading]) -> list[float]:
        return [value for reading in of if (value := getattr(reading, name)) is not None]

    found: list[tuple[str, float, str]] = []
    if clocks := values("clock_mhz", calm):
        found += [("clock_min", compute_low_percentile(clocks), "MHz"), ("clock_mean", statistics.fmean(clocks), "MHz")]
    if powers := values("power_w", calm):
        found += [("power_mean", statistics.fmean(powers), "W")]
    if powers := values("power_w", every):
        found += [("power_max", max(powers), "W")]
    if heat := values("temperature_c", every):
        found += [("temperature_max", max(heat), "°C")]
    if margins := values("margin_c", every):
        # a difference: with the unit °C it would count as a temperature, for which less is better
        found += [("temperature_margin_min", min(margins), "K")]
    if heat := values("memory_temperature_c", every):
        found += [("memory_temperature_max", max(heat), "°C")]
    return tuple(Figure(name=name, value=round(value, 1), unit=unit, setting=setting) for name, value, unit in found)


def compute_low_percentile(values: Sequence[float]) -> float:
    """The value that all but the lowest few percent reach."""
    ordered = sorted(values)
    return ordered[len(ordered) * LOW_PERCENT // 100]


def judge_load_readings(
    readings: Sequence[SensorReading], limits: ThermalLimits
) -> tuple[tuple[str, ...], tuple[str, ...], Evidence]:
    """Faults, remarks and evidence from readings under load. A power cap is not a fault."""
    busy = [reading for reading in readings if reading.busy]
    faults, remarks = [], []
    for bit, says, todo in (
        (HW_THERMAL, "its hardware, because it is too hot", "check fans, filters and coolant"),
        (HW_BRAKE, "the brake signal of the power supply", "check the power supplies"),
        (HW_SLOWDOWN, "its hardware for an unknown reason", "check power supplies and cooling"),
    ):
        count = sum(bool(reading.reasons & bit) for reading in busy)
        known = bit == HW_SLOWDOWN and any(reading.reasons & (HW_THERMAL | HW_BRAKE) for reading in busy)
        if count >= HARDWARE_READINGS_MIN and not known:
            faults.append(
                f"slowed down by {says}, in {count} of {format_count(len(busy), 'reading')} under load; {todo}"
            )
    if hot := sum(bool(reading.reasons & SW_THERMAL) for reading in busy):
        says = f"slowed down by the driver for heat in {hot} of {format_count(len(busy), 'reading')} under load"
        if 100 * hot > HEAT_PERCENT_MAX * len(busy):
            faults.append(f"{says}; check fans, filters and coolant")
        else:
            remarks.append(says)
    margins = [reading.margin_c for reading in readings if reading.margin_c is not None]
    if margins and min(margins) <= 0:
        faults.append(
            f"it came to {min(margins):g} °C below the driver's slowdown temperature; check fans, filters and coolant"
        )
    elif margins and min(margins) <= MARGIN_C:
        remarks.append(f"it came within {min(margins):g} °C of the driver's slowdown temperature")
    if not margins:
        faults += _too_hot("it", "temperature_c", readings, limits.slowdown_c)
    faults += _too_hot("its memory", "memory_temperature_c", readings, limits.memory_max_c)
    capped = sum(bool(reading.reasons & POWER_CAP) for reading in busy)
    evidence: Evidence = {"readings": len(readings), "readings_under_load": len(busy)}
    if busy:
        evidence["power_capped_percent"] = round(100 * capped / len(busy), 1)
    return tuple(faults), tuple(remarks), evidence


def explain_blind_readings(readings: Sequence[SensorReading]) -> str:
    """Why these readings are unusable: they contain neither a temperature nor a clock. Empty if one of them does."""
    if any(reading.temperature_c is not None or reading.clock_mhz is not None for reading in readings):
        return ""
    return (
        f"the driver reported neither temperature nor clock in {format_count(len(readings), 'reading')}, so temperature and throttling are "
        "unknown; check nvidia-smi -q"
    )


def _too_hot(what: str, name: str, readings: Sequence[SensorReading], limit: float | None) -> list[str]:
    heat = [value for reading in readings if (value := getattr(reading, name)) is not None]
    if limit is None or not limit or not heat or max(heat) < limit:
        return []
    return [
        f"{what} reached {max(heat):g} °C; thermal protection begins at {limit:g} °C; check fans, filters and coolant"
    ]


class LoadBurst(msgspec.Struct, frozen=True):
    """Work without a pause: its seconds, and number of products."""

    at: float
    seconds: float
    products: int


def compute_product_rate(bursts: Sequence[LoadBurst]) -> float:
    """Products per second over all bursts; 0 without any."""
    seconds = sum(burst.seconds for burst in bursts)
    return sum(burst.products for burst in bursts) / seconds if seconds else 0.0


def compute_sag_percent(bursts: Sequence[LoadBurst]) -> float | None:
    """By how much the last tenth was slower than the first; negative if faster; None for fewer than ten bursts."""
    tenth = len(bursts) // 10
    if not tenth or not (first := compute_product_rate(bursts[:tenth])):
        return None
    return 100 * (1 - compute_product_rate(bursts[-tenth:]) / first)
