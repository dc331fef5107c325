"""Queries DCGM's host engine through `dcgmi` (0.1 s), or else a dcgm-exporter on this machine. Never required.

Profiling fields are read only if option `profile` is "yes": reading them occupies counters that profilers need.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

EXPORTER = "127.0.0.1:9400"
DEADLINE_S = 8.0
FIELDS = (1002, 1004, 1005, 1009, 1010)  # dcgm_fields.h: SM active, tensor pipe, DRAM, PCIe transmitted, received
NAMES = (
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
)
INCIDENTS_MAX = 200
TEXT_CHARS_MAX = 300
INDEX_DIGITS_MAX = 9
_NOT_WATCHED = "watches not enabled"


class DcgmIncident(NamedTuple):
    """One incident, as DCGM judges it."""

    entity: str  # "GPU 3", "NvSwitch 0"
    system: str  # "Memory system", "NVLINK system", …
    health: str  # Warning or Failure
    text: str


class DcgmProfile(NamedTuple):
    """One GPU over the last sampling interval. Ratios of 0 to 1; None where DCGM has none."""

    gpu: int
    sm_active: float | None
    tensor_active: float | None
    dram_active: float | None
    pcie_tx_bytes_s: float | None
    pcie_rx_bytes_s: float | None


class DcgmSample(NamedTuple):
    """`watched`: DCGM's health watches are on, so that no incident means healthy."""

    via: str  # "dcgmi", or the exporter's address
    watched: bool
    incidents: tuple[DcgmIncident, ...]
    profiles: tuple[DcgmProfile, ...]


METRICS = (
    Family(
        rows="",
        labels=("via",),
        metrics=(Metric("healthd_dcgm_watched", "1 if DCGM's health watches are on.", "watched"),),
    ),
    Family(
        rows="profiles",
        labels=("gpu",),
        metrics=(
            Metric("healthd_dcgm_sm_active_ratio", "Share of multiprocessors with a warp.", "sm_active"),
            Metric("healthd_dcgm_tensor_active_ratio", "Share of tensor cycles in use.", "tensor_active"),
            Metric("healthd_dcgm_dram_active_ratio", "Share of memory cycles in use.", "dram_active"),
            Metric("healthd_dcgm_pcie_transmit_bytes_per_second", "Data sent over PCIe.", "pcie_tx_bytes_s"),
            Metric("healthd_dcgm_pcie_receive_bytes_per_second", "Data received over PCIe.", "pcie_rx_bytes_s"),
        ),
    ),
)


def read_dcgm(machine: MachineAccess, options: Options) -> DcgmSample:
    """Return the host engine's values; without one, the exporter's (option `exporter`, HOST:PORT).

    Raises:
        SourceAbsent: neither is here.
    """
    try:
        return _read_host_engine(machine, profile="yes" in options.get("profile", ()))
    except SourceAbsent as absent:
        address = (*options.get("exporter", ()), EXPORTER)[0]
        page = machine.http_page(address, "/metrics", DEADLINE_S)
        if page is None:
            raise SourceAbsent(f"{absent}; and no dcgm-exporter at {address}") from None
        return DcgmSample(address, False, (), parse_exporter_page(page))


def _read_host_engine(machine: MachineAccess, *, profile: bool) -> DcgmSample:
    code, output = machine.run(["dcgmi", "health", "--check", "--json"], DEADLINE_S)
    watched = code == 0
    if not watched and _NOT_WATCHED not in output:
        raise SourceAbsent(f"dcgmi: {(output.strip().splitlines() or ['no host engine answers'])[0][:TEXT_CHARS_MAX]}")
    profiles: tuple[DcgmProfile, ...] = ()
    if profile:
        fields = ",".join(map(str, FIELDS))
        code, table = machine.run(["dcgmi", "dmon", "-e", fields, "-c", "1", "-d", "100"], DEADLINE_S)
        profiles = parse_dmon_table(table) if code == 0 else ()
    return DcgmSample("dcgmi", watched, parse_dcgm_health(output) if watched else (), profiles)


def parse_dcgm_health(text: str) -> tuple[DcgmIncident, ...]:
    """Parse `dcgmi health --check` (DCGM, dcgmi/Health.cpp): group → entity → Errors → system → value and text.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    found = []
    for group, entities in _list_members(document, "body"):
        for number, entity in _list_children(entities):
            for system, error in _list_children(dict(_list_children(entity)).get("Errors")):
                words = error.get("overflow") if isinstance(error, dict) else None
                text = " ".join(map(str, words)) if isinstance(words, list) else ""
                health = str(error.get("value", "")) if isinstance(error, dict) else str(error)
                found.append(DcgmIncident(f"{group} {number}", system, health, text[:TEXT_CHARS_MAX]))
    return tuple(found[:INCIDENTS_MAX])


def parse_dmon_table(text: str) -> tuple[DcgmProfile, ...]:
    """Parse `dcgmi dmon` rows: ``GPU 0 0.93 0.41 …``, one column per field in the requested order; N/A is unknown."""
    rows = [
        words for line in text.splitlines() if (words := line.split())[:1] == ["GPU"] and len(words) == 2 + len(FIELDS)
    ]
    return tuple(DcgmProfile(int(words[1]), *map(_parse_number, words[2:])) for words in rows if _is_index(words[1]))


def parse_exporter_page(text: str) -> tuple[DcgmProfile, ...]:
    """Parse a dcgm-exporter's page: ``NAME{gpu="0",…} value``."""
    values: dict[int, dict[str, float | None]] = {}
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        if not brace or name not in NAMES:
            continue
        labels, _, value = rest.rpartition("}")
        gpu = labels.partition('gpu="')[2].partition('"')[0]
        if _is_index(gpu):
            values.setdefault(int(gpu), {})[name] = _parse_number(value.split()[0] if value.split() else "")
    return tuple(DcgmProfile(gpu, *(known.get(name) for name in NAMES)) for gpu, known in sorted(values.items()))


def _is_index(word: str) -> bool:
    return word.isdecimal() and len(word) <= INDEX_DIGITS_MAX


def _list_children(node: Any) -> list[tuple[str, Any]]:
    return _list_members(node, "children")


def _list_members(node: Any, key: str) -> list[tuple[str, Any]]:
    members = node.get(key) if isinstance(node, dict) else None
    return list(members.items()) if isinstance(members, dict) else []


def _parse_number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value < 1e15 else None  # DCGM reports unknown as a huge number; NaN fails both
