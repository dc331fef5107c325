from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.version_checks import Limits, VersionsCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.versions import VersionsSample, parse_microcode_revisions, parse_os_release, read_versions
from healthd.findings.facts import Moment, Raise, Unknown
from vocabulary.hardware.kernel_command_line import select_relevant_options

Build = Callable[[Mapping[str, str]], MachineAccess]
MACHINE = {
    "/proc/sys/kernel/osrelease": "5.15.0-1071-nvidia\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 quiet iommu=pt pci=realloc=off\n",
    "/proc/cpuinfo": "processor\t: 0\nmicrocode\t: 0x2b000603\nprocessor\t: 1\nmicrocode\t: 0x2b000603\n",
    "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "/sys/class/dmi/id/sys_vendor": "NVIDIA\n",
    "/sys/class/dmi/id/product_name": "DGXH100\n",
    "/sys/class/dmi/id/bios_version": "1.05.03\n",
    "/sys/module/nvidia/version": "570.86.15\n",
    "/sys/module/nvidia_peermem/refcnt": "0\n",
}


def sample(microcode: str) -> VersionsSample:
    return VersionsSample("k", "o", "b", "1", microcode, "", "", "", "")


def test_everything_a_node_tells_is_read(machine: Build) -> None:
    assert read_versions(machine(MACHINE), {}) == VersionsSample(
        kernel="5.15.0-1071-nvidia",
        os="Ubuntu 22.04.5 LTS",
        board="NVIDIA DGXH100",
        bios="1.05.03",
        microcode="0x2b000603",
        nvidia="570.86.15",
        nvidia_peermem="loaded",
        mlx5="",
        cmdline="iommu=pt pci=realloc=off",
    )


def test_an_image_is_named_with_its_version(machine: Build) -> None:
    text = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nIMAGE_ID=gpu-node\nIMAGE_VERSION="2026.11"\n'
    assert read_versions(machine(MACHINE | {"/etc/os-release": text}), {}).image == "gpu-node 2026.11"


def test_no_kernel_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent):
        read_versions(machine({}), {})


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert "\n" not in parse_os_release(text).get("PRETTY_NAME", "") + parse_microcode_revisions(
        text
    ) + select_relevant_options(text)


@pytest.mark.parametrize(("microcode", "kinds"), [("0x1", []), ("0x1 0x2", [Raise]), ("", [Unknown])])
def test_cores_that_differ_are_a_warning(microcode: str, kinds: list[type]) -> None:
    facts = VersionsCheck(Limits(microcodes_max=1)).judge(sample(microcode), Moment(0, 0))
    assert [type(fact) for fact in facts] == kinds
