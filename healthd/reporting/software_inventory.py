"""The software that is installed and runs on this node, taken from samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.collectors.infiniband import InfinibandSample
from healthd.collectors.versions import VersionsSample
from healthd.samples.nvml import Inventory
from healthd.samples.source import SourceReading
from vocabulary import VERSION
from vocabulary.messages.wire import Versions

NOTHING = VersionsSample("", "", "", "", "", "", "", "", "")


def collect_installed_versions(inventory: Inventory | None, sources: Mapping[str, SourceReading]) -> Versions:
    """Return installed versions by name; empty if this machine does not report them."""
    host = next((r.sample for r in sources.values() if isinstance(r.sample, VersionsSample)), NOTHING)
    ports = next((r.sample.ports for r in sources.values() if isinstance(r.sample, InfinibandSample)), ())
    found = Versions(
        healthd=VERSION,
        driver=inventory.driver if inventory else host.nvidia,
        kernel=host.kernel,
        image=host.image or host.os,
        bios=host.bios,
        vbios=tuple(gpu.vbios for gpu in inventory.constants) if inventory else (),
        firmware=tuple(f"{port.board} {port.firmware}".strip() for port in ports if port.firmware),
    )
    return found.tidy()
