from __future__ import annotations

from typing import Any

from healthd.collectors.infiniband import InfinibandSample
from healthd.collectors.versions import VersionsSample
from healthd.reporting.software_inventory import collect_installed_versions
from healthd.samples.nvml import GpuConstants, Inventory
from healthd.samples.source import SourceReading, SourceState
from tests.unit.healthd.sources.test_infiniband import PORT
from vocabulary import VERSION
from vocabulary.messages.wire import VERSION_CHARS_MAX, Versions

HOST = VersionsSample("6.8.0", "Ubuntu 22.04.5 LTS", "Dell", "2.1", "0x1", "550.54.15", "", "", "")


def seen(**samples: Any) -> dict[str, SourceReading]:
    return {
        name: SourceReading(source=name, state=SourceState.PRESENT, at=1.0, sample=sample)
        for name, sample in samples.items()
    }


def test_a_machine_that_tells_nothing() -> None:
    assert collect_installed_versions(None, {}) == Versions(healthd=VERSION)
    waiting = {"versions": SourceReading(source="versions", state=SourceState.WAITING, at=0.0)}
    assert collect_installed_versions(None, waiting) == Versions(healthd=VERSION)


def test_everything_each_once() -> None:
    constants = tuple(GpuConstants(index=n, vbios=vbios) for n, vbios in enumerate(("96.00", "96.00", "", "97.00")))
    ports = tuple(PORT._replace(device=f"mlx5_{n}", board="MT_1", firmware="28.39") for n in range(8))
    found = collect_installed_versions(
        Inventory("555.42", 4, (), constants),
        seen(versions=HOST._replace(image="gpu-node 7"), infiniband=InfinibandSample(ports, {})),
    )
    assert found == Versions(
        healthd=VERSION,
        driver="555.42",
        kernel="6.8.0",
        image="gpu-node 7",
        bios="2.1",
        vbios=("96.00", "97.00"),
        firmware=("MT_1 28.39",),
    )


def test_the_driver_of_a_node_whose_gpus_are_not_asked_yet() -> None:
    found = collect_installed_versions(None, seen(versions=HOST._replace(kernel="k" * 1000)))
    assert (found.driver, found.image) == ("550.54.15", "Ubuntu 22.04.5 LTS")
    assert len(found.kernel) == VERSION_CHARS_MAX
