"""The explicit list of sources that the source child reads.

To add one, write its sample, collector, check and test, and name it here: `docs/how-to/adding-a-source.md` walks through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from healthd.checks import clock_checks as clock_check
from healthd.checks import dcgm_checks as dcgm_check
from healthd.checks import disk_checks as disks_check
from healthd.checks import edac_checks as edac_check
from healthd.checks import ethernet_checks as ethernet_check
from healthd.checks import fabric_manager_checks as fabric_manager_check
from healthd.checks import infiniband_checks as infiniband_check
from healthd.checks import network_mount_checks as network_mounts_check
from healthd.checks import nvme_checks as nvme_check
from healthd.checks import pcie_checks as pcie_check
from healthd.checks import pressure_checks as pressure_check
from healthd.checks import process_checks as processes_check
from healthd.checks import service_checks as services_check
from healthd.checks import version_checks as versions_check
from healthd.findings.facts import Held, Moment
from healthd.samples import (
    clock,
    dcgm,
    disks,
    edac,
    ethernet,
    fabric_manager,
    infiniband,
    network_mounts,
    nvme,
    pcie,
    pressure,
    processes,
    services,
    versions,
)
from healthd.samples.metric_declaration import Family
from healthd.thresholds import Thresholds


class Check(Protocol):
    """A check, stateless but for its history: samples in, facts out."""

    def judge(self, sample: Any, now: Moment) -> list[Held]:
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


SOURCES: tuple[Source, ...] = (
    Source(
        name="pressure",
        every_s=10.0,
        sample=pressure.PressureSample,
        metrics=pressure.METRICS,
        check_name=pressure_check.CHECK,
        limits=pressure_check.Limits,
        check=pressure_check.PressureCheck,
        reads="/proc/pressure/{cpu,io,memory}",
        cost="3 files, 0.1 ms",
        when_absent="the kernel is older than 4.20 or was started with psi=0: memory pressure is not detected before the OOM killer acts",
    ),
    Source(
        name="edac",
        every_s=60.0,
        sample=edac.EdacSample,
        metrics=edac.METRICS,
        check_name=edac_check.CHECK,
        limits=edac_check.Limits,
        check=edac_check.EdacCheck,
        reads="/sys/devices/system/edac/mc",
        cost="4 files a memory module, 2 ms for 32",
        when_absent="host memory errors show only as crashes or in the kernel log",
    ),
    Source(
        name="disks",
        every_s=30.0,
        sample=disks.DisksSample,
        metrics=disks.METRICS,
        check_name=disks_check.CHECK,
        limits=disks_check.Limits,
        check=disks_check.DisksCheck,
        reads="process 1's mount table, statvfs of local file systems",
        cost="20 µs a file system",
        when_absent="full and read-only disks are noticed only when a job fails",
    ),
    Source(
        name="network_mounts",
        every_s=60.0,
        sample=network_mounts.NetworkMountsSample,
        metrics=network_mounts.METRICS,
        check_name=network_mounts_check.CHECK,
        limits=network_mounts_check.Limits,
        check=network_mounts_check.NetworkMountsCheck,
        reads="process 1's mount table, statvfs in a separate process per network mount",
        cost="2 ms a mount",
        when_absent="a dead file server is noticed only when jobs hang",
    ),
    Source(
        name="nvme",
        every_s=60.0,
        sample=nvme.NvmeSample,
        metrics=nvme.METRICS,
        check_name=nvme_check.CHECK,
        limits=nvme_check.Limits,
        check=nvme_check.NvmeCheck,
        reads="/sys/class/nvme, each controller's health log",
        cost="0.2 ms a disk",
        when_absent="wear and data loss of local disks are noticed only when they fail",
    ),
    Source(
        name="processes",
        every_s=60.0,
        sample=processes.ProcessesSample,
        metrics=processes.METRICS,
        check_name=processes_check.CHECK,
        limits=processes_check.Limits,
        check=processes_check.ProcessesCheck,
        reads="/proc/*/stat",
        cost="8 µs a process, 40 ms for five thousand",
        when_absent="processes that hang in the kernel are not detected",
    ),
    Source(
        name="clock",
        every_s=60.0,
        sample=clock.ClockSample,
        metrics=clock.METRICS,
        check_name=clock_check.CHECK,
        limits=clock_check.Limits,
        check=clock_check.ClockCheck,
        reads="adjtimex(2)",
        cost="1 µs",
        when_absent="a drifting clock is noticed only when logs of several nodes disagree",
    ),
    Source(
        name="versions",
        every_s=600.0,
        sample=versions.VersionsSample,
        metrics=versions.METRICS,
        check_name=versions_check.CHECK,
        limits=versions_check.Limits,
        check=versions_check.VersionsCheck,
        reads="a dozen files of /proc and /sys",
        cost="1 ms",
        when_absent="differently updated nodes cannot be distinguished",
    ),
    Source(
        name="services",
        every_s=60.0,
        sample=services.ServicesSample,
        metrics=services.METRICS,
        check_name=services_check.CHECK,
        limits=services_check.Limits,
        check=services_check.ServicesCheck,
        reads="systemctl show of a few units",
        cost="a program's start, 10 ms",
        when_absent="dead services are noticed only by their effects",
        options={"units": "the units that must run, instead of the usual ones that are enabled"},
    ),
    Source(
        name="fabric_manager",
        every_s=10.0,
        sample=fabric_manager.FabricManagerSample,
        metrics=fabric_manager.METRICS,
        check_name=fabric_manager_check.CHECK,
        limits=fabric_manager_check.Limits,
        check=fabric_manager_check.FabricManagerCheck,
        reads="the end of /var/log/fabricmanager.log",
        cost="64 KiB, 0.2 ms",
        when_absent="there are no NVSwitches, or their errors appear only in the kernel log",
        options={"path": "path of the fabric manager's log"},
    ),
    Source(
        name="dcgm",
        every_s=60.0,
        sample=dcgm.DcgmSample,
        metrics=dcgm.METRICS,
        check_name=dcgm_check.CHECK,
        limits=dcgm_check.Limits,
        check=dcgm_check.DcgmCheck,
        reads="dcgmi health --check, or a dcgm-exporter's page",
        cost="one program start and a TCP request, 0.1 s",
        when_absent="nothing essential: NVML and the kernel log cover nearly all of it",
        options={
            "exporter": "HOST:PORT of a dcgm-exporter, used if no host engine answers",
            "profile": "yes: also read profiling fields, which occupies counters that profilers need",
        },
    ),
    Source(
        name="infiniband",
        every_s=10.0,
        sample=infiniband.InfinibandSample,
        metrics=infiniband.METRICS,
        check_name=infiniband_check.CHECK,
        limits=infiniband_check.Limits,
        check=infiniband_check.InfinibandCheck,
        reads="/sys/class/infiniband",
        cost="18 files a port, 2.5 ms for 8",
        when_absent="a port that is down or slow shows only as a slow job",
        options={"expected": "DEVICE:GBPS for each port that must be up at that rate"},
    ),
    Source(
        name="ethernet",
        every_s=10.0,
        sample=ethernet.EthernetSample,
        metrics=ethernet.METRICS,
        check_name=ethernet_check.CHECK,
        limits=ethernet_check.Limits,
        check=ethernet_check.EthernetCheck,
        reads="/sys/class/net, interfaces with a device",
        cost="8 files an interface, 0.3 ms for 2",
        when_absent="flapping links show only as jobs that lose connections",
    ),
    Source(
        name="pcie",
        every_s=30.0,
        sample=pcie.PcieSample,
        metrics=pcie.METRICS,
        check_name=pcie_check.CHECK,
        limits=pcie_check.Limits,
        check=pcie_check.PcieCheck,
        reads="/sys/bus/pci/devices: GPUs, NVSwitches, adapters, disks, and the bridges above them",
        cost="7 files a hop, 4 ms for 24 hops",
        when_absent="links that lost lanes show only as slow copies",
    ),
)


def map_sources_by_name() -> dict[str, Source]:
    """Return all sources by name."""
    return {source.name: source for source in SOURCES}
