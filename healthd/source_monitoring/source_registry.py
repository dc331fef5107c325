"""The explicit list of sources that the source child reads.

To add one, write its collector, check and test, and name it here: `docs/how-to/adding-a-source.md` walks through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from healthd.checks import (
    clock_checks,
    dcgm_checks,
    disk_checks,
    edac_checks,
    ethernet_checks,
    fabric_manager_checks,
    infiniband_checks,
    nccl_ras_checks,
    network_mount_checks,
    nvme_checks,
    pcie_checks,
    pressure_checks,
    process_checks,
    service_checks,
    version_checks,
)
from healthd.collectors import (
    clock,
    dcgm,
    disks,
    edac,
    ethernet,
    fabric_manager,
    infiniband,
    nccl_ras,
    network_mounts,
    nvme,
    pcie,
    pressure,
    processes,
    services,
    versions,
)
from healthd.findings.facts import LevelFact, Moment
from healthd.samples.metric_declaration import Family
from healthd.thresholds import Thresholds


class Check(Protocol):
    """A check, stateless but for its history: samples in, facts out."""

    def judge(self, sample: Any, now: Moment) -> list[LevelFact]:
        """Return all facts that hold now. A fact that is neither repeated nor marked unknown has ended."""


class CheckClass(Protocol):
    """Makes a check from its section of the thresholds."""

    def __call__(self, limits: Any) -> Check:
        """Make the check."""


class Source(NamedTuple):
    """One source. The collector is `healthd.collectors.NAME`; its check reports as `check_name`."""

    name: str
    every_s: float
    sample: type
    metrics: tuple[Family, ...]
    check_name: str
    limits: type
    check: CheckClass
    reads: str
    cost: str
    when_absent: str
    options: Mapping[str, str] = {}

    def make_check(self, thresholds: Thresholds) -> Check:
        """Make its check with this node's thresholds.

        Raises:
            ThresholdsError: they do not fit.
        """
        return self.check(thresholds.section(self.check_name, self.limits))


def make_source(
    collector: ModuleType,
    checks: ModuleType,
    *,
    every_s: float,
    reads: str,
    cost: str,
    when_absent: str,
    options: Mapping[str, str] = {},
) -> Source:
    """Return the source of two modules, whose names follow from the collector's.

    The collector NAME has `read_NAME`, `NameSample` and `METRICS`; the check has `CHECK`, `Limits` and `NameCheck`.
    """
    name = collector.__name__.rpartition(".")[2]
    title = name.title().replace("_", "")
    return Source(
        name=name,
        every_s=every_s,
        sample=getattr(collector, f"{title}Sample"),
        metrics=collector.METRICS,
        check_name=checks.CHECK,
        limits=checks.Limits,
        check=getattr(checks, f"{title}Check"),
        reads=reads,
        cost=cost,
        when_absent=when_absent,
        options=options,
    )


SOURCES: tuple[Source, ...] = (
    make_source(
        pressure,
        pressure_checks,
        every_s=10.0,
        reads="/proc/pressure/{cpu,io,memory}",
        cost="3 files, 0.1 ms",
        when_absent="the kernel is older than 4.20 or was started with psi=0: memory pressure is not detected before the OOM killer acts",
    ),
    make_source(
        edac,
        edac_checks,
        every_s=60.0,
        reads="/sys/devices/system/edac/mc",
        cost="4 files a memory module, 2 ms for 32",
        when_absent="host memory errors show only as crashes or in the kernel log",
    ),
    make_source(
        disks,
        disk_checks,
        every_s=30.0,
        reads="process 1's mount table, statvfs of local file systems",
        cost="20 µs a file system",
        when_absent="full and read-only disks are noticed only when a job fails",
    ),
    make_source(
        network_mounts,
        network_mount_checks,
        every_s=60.0,
        reads="process 1's mount table, statvfs in a separate process per network mount",
        cost="2 ms a mount",
        when_absent="a dead file server is noticed only when jobs hang",
    ),
    make_source(
        nvme,
        nvme_checks,
        every_s=60.0,
        reads="/sys/class/nvme, each controller's health log",
        cost="0.2 ms a disk",
        when_absent="wear and data loss of local disks are noticed only when they fail",
    ),
    make_source(
        processes,
        process_checks,
        every_s=60.0,
        reads="/proc/*/stat",
        cost="8 µs a process, 40 ms for five thousand",
        when_absent="processes that hang in the kernel are not detected",
    ),
    make_source(
        clock,
        clock_checks,
        every_s=60.0,
        reads="adjtimex(2)",
        cost="1 µs",
        when_absent="a drifting clock is noticed only when logs of several nodes disagree",
    ),
    make_source(
        versions,
        version_checks,
        every_s=600.0,
        reads="a dozen files of /proc and /sys",
        cost="1 ms",
        when_absent="differently updated nodes cannot be distinguished",
    ),
    make_source(
        services,
        service_checks,
        every_s=60.0,
        reads="systemctl show of a few units",
        cost="a program's start, 10 ms",
        when_absent="dead services are noticed only by their effects",
        options={"units": "the units that must run, instead of the usual ones that are enabled"},
    ),
    make_source(
        fabric_manager,
        fabric_manager_checks,
        every_s=10.0,
        reads="the end of /var/log/fabricmanager.log",
        cost="64 KiB, 0.2 ms",
        when_absent="there are no NVSwitches, or their errors appear only in the kernel log",
        options={"path": "path of the fabric manager's log"},
    ),
    make_source(
        dcgm,
        dcgm_checks,
        every_s=60.0,
        reads="dcgmi health --check, or a dcgm-exporter's page",
        cost="one program start and a TCP request, 0.1 s",
        when_absent="nothing essential: NVML and the kernel log cover nearly all of it",
        options={
            "exporter": "HOST:PORT of a dcgm-exporter, used if no host engine answers",
            "profile": "yes: also read profiling fields, which occupies counters that profilers need",
        },
    ),
    make_source(
        nccl_ras,
        nccl_ras_checks,
        every_s=2.0,
        reads="NCCL's RAS service, in the network namespaces of processes on GPUs",
        cost="nothing without such a process; else a fork and a TCP request, 5 ms for 64 ranks",
        when_absent="a hang is noticed only in jobs that publish their steps, or by NCCL's own time-out",
        options={"address": "HOST:PORT where jobs' RAS listens, if not localhost:28028 (NCCL_RAS_ADDR)"},
    ),
    make_source(
        infiniband,
        infiniband_checks,
        every_s=10.0,
        reads="/sys/class/infiniband",
        cost="18 files a port, 2.5 ms for 8",
        when_absent="a port that is down or slow shows only as a slow job",
        options={"expected": "DEVICE:GBPS for each port that must be up at that rate"},
    ),
    make_source(
        ethernet,
        ethernet_checks,
        every_s=10.0,
        reads="/sys/class/net, interfaces with a device",
        cost="8 files an interface, 0.3 ms for 2",
        when_absent="flapping links show only as jobs that lose connections",
    ),
    make_source(
        pcie,
        pcie_checks,
        every_s=30.0,
        reads="/sys/bus/pci/devices: GPUs, NVSwitches, adapters, disks, and the bridges above them",
        cost="7 files a hop, 4 ms for 24 hops",
        when_absent="links that lost lanes show only as slow copies",
    ),
)


def map_sources_by_name() -> dict[str, Source]:
    """Return all sources by name."""
    return {source.name: source for source in SOURCES}
