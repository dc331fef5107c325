"""NVLink and NVSwitch fabric as reported by the driver, before and after traffic. Reading may hang; judging is pure."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from preflight.check_context import Device, Note
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from preflight.results import Evidence, Location, Outcome, Result

TEST = "peer_links"
FABRIC_COMPLETED = 3
# Names of NVML's numbered values, newest first: NVLink 5 uses other counters than its predecessors.
COUNTERS = {
    "crc": ("NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS", "NVML_FI_DEV_NVLINK_ERROR_DL_CRC"),
    "replays": ("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",),
    "recoveries": ("NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY"),
}
# Error counts that traffic may add per second, and at least per test: single transfer errors are corrected, a replay
# costs microseconds, a recovery stops the link briefly.
PER_SECOND_MAX = {"crc": 100.0, "replays": 1.0, "recoveries": 0.0}
LEAST_SECONDS = 10.0
_UP = {0: False, 1: True, 2: True, 3: False}  # NVML_NVLINK_STATE_*: 2 sleeps and wakes up, 3 carries no traffic
_P2P_NVLINK, _P2P_OK = 2, 0


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a GPU; None where the driver does not report it."""

    number: int
    up: bool | None
    counters: Mapping[str, int] = {}


class NvLinks(msgspec.Struct, frozen=True, kw_only=True):
    """All links of one GPU, and the rate of one per direction (0: unknown). `fabric_state` and `fabric_status` are NVML's numbers; None without an NVSwitch fabric."""

    links: tuple[NvLink, ...] = ()
    link_gb_s: float = 0.0
    fabric_state: int | None = None
    fabric_status: int | None = None


def judge_nvlinks(device: str, before: NvLinks, after: NvLinks, seconds: float) -> Result | None:
    """The errors of one GPU's links after this many seconds of traffic; None if it has no links.

    Errors count by their increase. A link that is down is an error in an NVSwitch fabric, which needs all links; elsewhere it
    may be by design, and the comparison with other GPUs decides (`preflight.device_comparison.link_results`).
    """
    if not after.links and not before.links:
        return None
    was = {link.number: link for link in before.links}
    found: list[tuple[int, str]] = []
    totals = dict.fromkeys(PER_SECOND_MAX, 0)
    for link in after.links:
        old = was.pop(link.number, link)
        if link.up is False and (after.fabric_state is not None or old.up):
            found.append((link.number, "is down" if not old.up else "went down during the test"))
        for name, per_second in PER_SECOND_MAX.items():
            added = max(0, link.counters.get(name, 0) - old.counters.get(name, link.counters.get(name, 0)))
            totals[name] += added
            if added > (most := per_second * max(LEAST_SECONDS, seconds)):
                found.append((link.number, f"has {added} {name} more after the test, {most:g} allowed"))
    found += [(number, "no longer answers") for number in was]
    up, count = sum(link.up is True for link in after.links), len(after.links) + len(was)
    unsaid = sum(link.up is None for link in after.links)
    down = ", ".join(str(link.number) for link in after.links if link.up is False)
    evidence: Evidence = {"nvlink_links": count, "nvlinks_up": up, "nvlinks_down": down}
    evidence |= {f"nvlink_{name}": total for name, total in totals.items()}
    if after.link_gb_s:
        evidence["nvlink_link_gb_s"] = after.link_gb_s
    faults = [*(f"NVLink {number} {what}" for number, what in found), *_judge_fabric(after)]
    short = [f"{up} of {count} NVLinks are up"] if up + unsaid < count and faults else []
    return Result(
        test=TEST,
        outcome=Outcome.FAIL if faults else Outcome.PASS,
        device=device,
        reason="; ".join(short + faults),
        locations=tuple(Location(gpu=device, link=number) for number in sorted({number for number, _ in found})),
        remarks=(f"the driver does not say whether {unsaid} of {count} NVLinks are up",) if unsaid else (),
        evidence=evidence,
    )


def _judge_fabric(seen: NvLinks) -> list[str]:
    if seen.fabric_state is None:
        return []
    if seen.fabric_state != FABRIC_COMPLETED:
        words = f"state {seen.fabric_state} instead of {FABRIC_COMPLETED}"
        return [f"the GPU has not joined its NVLink fabric ({words}); check nvidia-fabricmanager, then reset the GPU"]
    if seen.fabric_status:
        return [f"joining the NVLink fabric failed with status {seen.fabric_status}; check nvidia-fabricmanager"]
    return []


class NvLinkReader:
    """The links of one device as reported by the driver; empty without links or driver."""

    def __init__(self, device: Device, devices: Sequence[Device], note: Note) -> None:
        self._device, self._note = device, note
        self._driver: NvmlDriver | None = None
        self._gpus: dict[str, Any] = {}
        note("reading the driver's list of NVLinks")
        if device.on_host and not device.uuid:
            return
        try:
            self._driver = NvmlDriver()
        except NoDriverError:
            return
        self._gpus = {each.name: self._driver.gpu(each.uuid) for each in devices if each.uuid}

    def read(self) -> NvLinks:
        """State and counters of every link now."""
        self._note("reading its NVLinks")
        driver, gpu = self._driver, self._gpus.get(self._device.name)
        if driver is None or gpu is None:
            return NvLinks()
        count = int(getattr(driver.library, "NVML_NVLINK_MAX_LINKS", 18))
        links = tuple(link for number in range(count) if (link := _read_link(driver, gpu, number)))
        state, status = _read_fabric_info(driver, gpu)
        speed = driver.field(gpu, getattr(driver.library, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", 90)) or 0
        return NvLinks(links=links, link_gb_s=speed / 1000, fabric_state=state, fabric_status=status)

    def medium(self, peer: Device) -> str:
        """``nvlink`` if the driver reports that the two are connected by it, else ``pcie``."""
        driver, gpu, other = self._driver, self._gpus.get(self._device.name), self._gpus.get(peer.name)
        if driver is None or gpu is None or other is None:
            return "unknown"
        return "nvlink" if driver.number("DeviceGetP2PStatus", gpu, other, _P2P_NVLINK) == _P2P_OK else "pcie"

    def judged(self, before: NvLinks, after: NvLinks, seconds: float, fault: str) -> Iterator[Result]:
        """The result, if there are links; with the fault ``nvlink_down`` one link is reported down."""
        if fault == "nvlink_down":
            links = after.links or tuple(NvLink(number=number, up=True) for number in range(18))
            down = msgspec.structs.replace(links[-1], up=False)
            after = msgspec.structs.replace(after, links=(*links[:-1], down), fabric_state=FABRIC_COMPLETED)
        if result := judge_nvlinks(self._device.name, before, after, seconds):
            yield result


def _read_link(driver: NvmlDriver, gpu: Any, number: int) -> NvLink | None:
    """None if the link does not exist. An unreadable link does not affect the others."""
    library = driver.library
    try:
        up = _UP.get(library.nvmlDeviceGetNvLinkState(gpu, number))
    except (library.NVMLError_NotSupported, library.NVMLError_InvalidArgument):
        return None
    except library.NVMLError:
        up = None
    counters = {
        name: value for name, ids in COUNTERS.items() if (value := _read_counter(driver, gpu, number, ids)) is not None
    }
    return NvLink(number=number, up=up, counters=counters)


def _read_counter(driver: NvmlDriver, gpu: Any, link: int, names: Sequence[str]) -> int | None:
    for name in names:
        if (number := getattr(driver.library, name, None)) is None:
            continue
        values = driver.ask("DeviceGetFieldValues", gpu, [(number, link)])
        if values and values[0].nvmlReturn == driver.library.NVML_SUCCESS:
            return int(values[0].value.ullVal)
    return None


def _read_fabric_info(driver: NvmlDriver, gpu: Any) -> tuple[int | None, int | None]:
    kind = getattr(driver.library, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        return None, None
    info = kind()
    driver.ask("DeviceGetGpuFabricInfo", gpu, ctypes.byref(info))
    return (int(info.state), int(info.status)) if info.state else (None, None)  # 0: there is no such fabric
