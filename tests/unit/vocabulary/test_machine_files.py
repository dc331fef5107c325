"""What the kernel's small files say, read by healthd and preflight alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.host.edac_counters import ModuleErrors, read_edac_counts
from preflight.host.network_rails import read_network_rails
from vocabulary.hardware.machine_files import Machine, parse_leading_number
from vocabulary.hardware.mount_table import Mount, parse_mount_table

PAGE_BYTES = 4096


def build(root: Path, files: dict[str, str]) -> Machine:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root)


def test_a_table_longer_than_a_page_is_read_to_its_end() -> None:
    """A read of such a file returns one page: of a long mount table the network mounts were missing."""
    text = Machine().text("/proc/self/smaps") or ""
    assert len(text) > 2 * PAGE_BYTES
    assert text.splitlines()[-1].startswith("VmFlags:")


def test_a_link_is_named_as_the_machine_names_it_also_below_a_linked_root(tmp_path: Path) -> None:
    build(tmp_path / "node", {"/sys/devices/pci0/vendor": "0x10de"})
    (tmp_path / "node" / "sys" / "gpu").symlink_to("devices/pci0")
    (tmp_path / "node" / "sys" / "outside").symlink_to(tmp_path)
    (tmp_path / "node2").mkdir()
    (tmp_path / "node" / "sys" / "beside").symlink_to(tmp_path / "node2")
    (tmp_path / "link").symlink_to("node")
    for root in ("node", "link"):
        machine = Machine(tmp_path / root)
        assert machine.target("/sys/gpu") == "/sys/devices/pci0"
        assert [machine.target(f"/sys/{name}") for name in ("outside", "beside", "nothing")] == ["", "", ""]
    assert Machine().target("/proc/self/root/dev/null") == "/dev/null"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("400 Gb/sec (4X NDR)", 400.0),
        ("2.5 GT/s PCIe", 2.5),
        ("0", 0.0),
        ("Unknown", None),
        ("", None),
        ("-1", None),
        ("nan Gb/sec", None),
        ("1e3", None),
        ("inf", None),
    ],
)
def test_a_rate_is_a_plain_number_or_unknown(text: str, number: float | None) -> None:
    assert parse_leading_number(text) == number


@given(st.text())
def test_any_rate_is_a_number_or_unknown(text: str) -> None:
    number = parse_leading_number(text)
    assert number is None or number >= 0


def test_names_of_mounts_are_unescaped_once_and_may_hold_any_other_blank() -> None:
    lines = [
        "fs:/a\\040b /a\\134040b nfs4 rw,hard 0 0",
        " /x\\043y fuse ro 0 0",
        "a /b\u2028c\x85 ext4 rw 0 0",
        "bad\\",
    ]
    assert parse_mount_table("\n".join(lines)) == [
        Mount("fs:/a b", "/a\\040b", "nfs4", ("rw", "hard")),
        Mount("", "/x#y", "fuse", ("ro",)),
        Mount("a", "/b\u2028c\x85", "ext4", ("rw",)),
    ]


@given(st.text(alphabet="a \\\t\n#0471é"))
def test_any_name_survives_the_kernels_escapes(name: str) -> None:
    escaped = "".join(f"\\{ord(letter):03o}" if letter in " \t\n\\#" else letter for letter in name)
    assert parse_mount_table(f"device {escaped} ext4 rw 0 0")[0].point == name


def test_a_controller_without_modules_counts_by_its_sums_for_preflight_too(tmp_path: Path) -> None:
    where = "/sys/devices/system/edac/mc"
    machine = build(
        tmp_path,
        {f"{where}/mc0/ce_count": "7", f"{where}/mc0/ue_count": "1", f"{where}/mc0/ce_noinfo_count": "0"}
        | {f"{where}/mc1/{name}": text for name, text in (("rank0/dimm_ce_count", "2"), ("rank0x/dimm_ce_count", "9"))}
        | {f"{where}/power/control": "auto"},
    )
    assert read_edac_counts(machine) == {"mc0, module unknown": ModuleErrors(7, 1), "mc1 rank0": ModuleErrors(2, 0)}


def test_a_port_without_a_known_rate_has_none(tmp_path: Path) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    machine = build(tmp_path, {f"{port}/state": "4: ACTIVE", f"{port}/phys_state": "5: LinkUp", f"{port}/rate": "?"})
    (rail,) = read_network_rails(machine)
    assert (rail.up, rail.words, rail.rate) == (True, "ACTIVE, LinkUp", None)
