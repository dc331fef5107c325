"""How much of the host's memory a test may allocate, and where, without disturbing others. Reading is separate from calculation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from vocabulary.hardware.machine_files import Machine

SHARES = {"gate": 0.1, "standard": 0.5, "burn-in": 0.8}
SPARE_BYTES_MIN = 1 << 30
SPARE_SHARE = 0.1  # of all memory: page cache, daemons, processes that start during the test
THREADS_MAX = 16  # per memory node; more would wait for the interpreter's lock
_NODES = "/sys/devices/system/node"
_NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


class MemoryZone(msgspec.Struct, frozen=True):
    """A memory node of the host and its CPUs. `bytes_` is the test's share of it."""

    numa: int
    cpus: tuple[int, ...]
    threads: int
    bytes_: int


def compute_memory_budget(machine: Machine, level: str) -> int:
    """The bytes to allocate: a share of the available memory, limited by the control groups, minus a reserve."""
    memory = machine.text("/proc/meminfo") or ""
    total, available = _parse_kilobytes("MemTotal", memory), _parse_kilobytes("MemAvailable", memory)
    free = min([available, *_iterate_cgroup_headroom(machine)])
    return max(0, int(min(free * SHARES.get(level, SHARES["gate"]), free - max(SPARE_BYTES_MIN, SPARE_SHARE * total))))


def distribute_over_zones(machine: Machine, bytes_total: int, affinity: Sequence[int]) -> tuple[MemoryZone, ...]:
    """Distribute `bytes_total` over the memory nodes with CPUs that this process may use, in proportion to their free memory.

    A node without CPUs is not used: on some machines it is a GPU's memory.
    """
    found = []
    for numa in parse_number_list(machine.text(f"{_NODES}/online") or ""):
        cpus = tuple(
            cpu for cpu in parse_number_list(machine.text(f"{_NODES}/node{numa}/cpulist") or "") if cpu in affinity
        )
        free = _parse_kilobytes(f"Node {numa} MemFree", machine.text(f"{_NODES}/node{numa}/meminfo") or "")
        if cpus and free:
            found.append((numa, cpus, free))
    if not found:
        return (MemoryZone(0, tuple(affinity), min(THREADS_MAX, len(affinity)), bytes_total),)
    free_total = sum(free for _, _, free in found)
    return tuple(
        MemoryZone(numa, cpus, min(THREADS_MAX, len(cpus)), int(min(bytes_total * (free / free_total), 0.9 * free)))
        for numa, cpus, free in found
    )


def parse_number_list(text: str) -> tuple[int, ...]:
    """Parse ``0-3,8`` as 0, 1, 2, 3, 8: the kernel's list format for CPUs and memory nodes. Empty if invalid."""
    found: list[int] = []
    try:
        for part in text.split(",") if text.strip() else ():
            first, dash, last = part.partition("-")
            found += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        return ()
    return tuple(found)


def _iterate_cgroup_headroom(machine: Machine) -> Iterator[int]:
    """The remaining memory of each control group above this process, v1 or v2. Droppable page cache counts as free."""
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top, names = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top, names = (
                "/sys/fs/cgroup/memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            where = "/".join([top, *parts[:depth]])
            limit, used = (machine.number(f"{where}/{name}") for name in names[:2])
            if limit is not None and used is not None and limit < _NO_LIMIT:
                cache = re.search(rf"^{names[2]} (\d+)", machine.text(f"{where}/memory.stat") or "", re.MULTILINE)
                yield limit - used + (int(cache[1]) if cache else 0)


def _parse_kilobytes(name: str, text: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else 0
