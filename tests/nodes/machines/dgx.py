"""A machine as a folder: the /sys and /proc of an eight-GPU node, as far as sources look. Not a copy of any real one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GPUS = 8  # in pairs, each with two NICs behind one PCIe switch

PROC = {
    "/var/log/fabricmanager.log": "[Mar 04 2025 11:59:59] [INFO] [tid 7] Fabric Manager started\n",
    "/proc/1/mounts": "/dev/nvme0n1p2 / ext4 rw 0 0\n/dev/md0 /raid xfs rw 0 0\nfs1:/home /home nfs4 rw 0 0\n",
    "/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    "/proc/sys/kernel/osrelease": "5.15.0-1071-nvidia\n",
    "/proc/cpuinfo": "processor\t: 0\nmicrocode\t: 0x2b000603\n",
    "/proc/1/stat": f"1 (systemd) S {' '.join('0' for _ in range(18))} 5 0 0\n",
    "/proc/77/stat": f"77 (python3) D {' '.join('0' for _ in range(18))} 500 0 0\n",
}
EDAC = {
    f"/sys/devices/system/edac/mc/mc{mc}/dimm{dimm}/{name}": value
    for mc in range(4)
    for dimm in range(4)
    for name, value in (("dimm_label", f"CPU{mc // 2}_{dimm}"), ("dimm_ce_count", "0"), ("dimm_ue_count", "0"))
}
IB_COUNTERS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
)
IB_HW_COUNTERS = ("out_of_sequence", "packet_seq_err", "roce_adp_retrans", "np_cnp_sent", "rp_cnp_handled")


def build(root: Path, more: Mapping[str, str] | None = None) -> Path:
    """Write the machine below `root`, and `more` files over it."""
    files = PROC | EDAC
    for number in range(2):
        where = f"/sys/class/nvme/nvme{number}"
        files |= {f"{where}/state": "live", f"{where}/model": "KCM6", f"{where}/serial": f"S{number}"}
    for path, text in (files | _ports()).items():
        write(root, path, text)
    for number in range(GPUS):
        at = device(root, number // 2, gpu_address(number), vendor="0x10de", kind="0x030200", speed="32.0 GT/s PCIe")
        bind(root, at, "nvidia")
        nic = f"0000:{0x18 + number:x}:00.0"
        device(root, number // 2, nic, vendor="0x15b3", kind="0x020700", speed="32.0 GT/s PCIe")
    for number in range(2):
        _interface(root, f"ens{number}f0", f"0000:e{number}:00.0")
    _interface(root, "docker0", None)
    for path, text in (more or {}).items():
        write(root, path, text)
    return root


def gpu_address(number: int) -> str:
    """Where the machine has GPU `number`: where the presets of the fake NVML have it too."""
    return f"0000:{0x10 + number:x}:00.0"


def bind(root: Path, at: str, driver: str) -> None:
    """Let `driver` hold the PCI device in folder `at`."""
    where = f"/sys/bus/pci/drivers/{driver}"
    (root / where.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (root / at.lstrip("/") / "driver").unlink(missing_ok=True)
    _link(root, f"{at}/driver", where)


def write(root: Path, path: str, text: str) -> None:
    """One file."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if text.endswith("\n") else f"{text}\n")


def device(root: Path, switch: int, address: str, *, vendor: str, kind: str, speed: str) -> str:
    """A PCIe device behind a root port and a switch; its folder."""
    port, bridge = f"0000:{switch:x}0:01.0", f"0000:8{switch:x}:00.0"
    where = f"/sys/devices/pci0000:{switch:x}0"
    for name, at in ((port, f"{where}/{port}"), (bridge, f"{where}/{port}/{bridge}")):
        _pci_files(root, at, "0x8086", "0x060400", speed)
        _link(root, f"/sys/bus/pci/devices/{name}", at)
    at = f"{where}/{port}/{bridge}/{address}"
    _pci_files(root, at, vendor, kind, speed)
    _link(root, f"/sys/bus/pci/devices/{address}", at)
    return at


def _pci_files(root: Path, at: str, vendor: str, kind: str, speed: str) -> None:
    values = {
        "vendor": vendor,
        "class": kind,
        "current_link_speed": speed,
        "max_link_speed": speed,
        "current_link_width": "16",
        "max_link_width": "16",
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 0",
    }
    for name, value in values.items():
        write(root, f"{at}/{name}", value)


def _link(root: Path, path: str, target: str) -> None:
    link = root / path.lstrip("/")
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(root / target.lstrip("/"))


def _ports() -> dict[str, str]:
    files = {}
    for number in range(GPUS):
        where = f"/sys/class/infiniband/mlx5_{number}"
        files |= {f"{where}/fw_ver": "28.39.1002", f"{where}/board_id": "MT_0000000838"}
        port = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
        }
        port |= {f"counters/{name}": "0" for name in IB_COUNTERS}
        port |= {f"hw_counters/{name}": "0" for name in IB_HW_COUNTERS}
        files |= {f"{where}/ports/1/{name}": value for name, value in port.items()}
    return files


def _interface(root: Path, name: str, address: str | None) -> None:
    where = f"/sys/class/net/{name}"
    values = {"operstate": "up", "carrier": "1", "carrier_changes": "2", "speed": "25000", "type": "1"}
    values |= {f"statistics/{counter}": "0" for counter in ("rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped")}
    for key, value in values.items():
        write(root, f"{where}/{key}", value)
    if address is not None:
        at = f"/sys/devices/pci0000:{address[5]}0/{address}"
        _pci_files(root, at, "0x8086", "0x020000", "8.0 GT/s PCIe")
        _link(root, f"{where}/device", at)
