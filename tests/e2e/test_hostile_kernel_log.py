"""A million lines that somebody made to hurt: a real healthd reads them all, stays small, and still sees the one fault."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from healthd_node import Node, eventually

from healthd.findings.finding_ledger import ACTIVE_MAX
from vocabulary.driver_log.xid_line import format_xid

LINES = 1_000_000
RSS_KIB_MAX = 96 * 1024  # of the main process alone; unbounded growth would pass it by far: the lines hold 170 MB
GOOD = format_xid(79, "0000:15:00", pid=42, process="python3", detail="GPU has fallen off the bus.")
FLOOD = format_xid(
    119, "0000:14:00", pid=7, process="python3", detail="Timeout after 6s of waiting for RPC response from GPU4 GSP!"
)


def hostile(dice: random.Random) -> Iterator[bytes]:
    """Ordinary lines, floods, garbage, and lines made of what the grammars look for."""
    words = [
        *(
            "NVRM: Xid (",
            "PCI:0000:13:00",
            "): 79,",
            "pid=",
            "name=",
            "SXid",
            "nvidia-nvswitch3:",
            "\\x41",
            "caused by",
        ),
        *("AER:", "EDAC MC0: ", "nvme nvme0: ", "mlx5_core 0000:1a:00.0", "BUG:", "Out of memory: Killed process "),
        *("gpu-healthd-inject node=", "(((((", "\t", " link ", "0x", "{", "'", '"', "RmInitAdapter failed! ("),
    ]
    for number in range(LINES):
        kind = dice.random()
        if kind < 0.5:
            yield f"docker0: port {number}(veth{number:x}) entered forwarding state".encode()
        elif kind < 0.7:
            yield FLOOD.encode()
        elif kind < 0.8:
            yield dice.randbytes(dice.randrange(200)).replace(b"\n", b"")
        elif kind < 0.99999:
            yield "".join(dice.choices(words, k=dice.randrange(1, 12))).encode()
        else:
            yield b"NVRM: Xid (PCI:0000:13:00): " * 40_000  # a megabyte


def rss_kib(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def records(node: Node) -> float:
    found = re.search(r"^healthd_kernel_records_total (\S+)$", node.get("/metrics"), re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_million_hostile_lines_cost_bounded_memory_and_hide_nothing(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    log = tmp_path / "kern.log"
    log.touch()
    node = make_node(kernel_log=log)
    node.start()
    assert node.process is not None
    dice = random.Random(11)  # noqa: S311 - the same lines every time
    with log.open("ab") as file:
        file.writelines(line + b"\n" for line in hostile(dice))
        file.write(GOOD.encode() + b"\n")
    end = log.stat().st_size
    eventually(lambda: fallen(node), lambda: f"{records(node):.0f} records read of {end} bytes", within_s=100)
    findings = node.get("/v1/findings")["findings"]
    assert len(findings) <= ACTIVE_MAX + 1
    flood = next(f for f in findings if f["code"] == "119" and f["component"]["pci"] == "0000:14:00.0")
    assert flood["count"] > LINES * 0.15, "a flood is one finding with a count"
    assert node.process.poll() is None
    assert rss_kib(node.process.pid) < RSS_KIB_MAX


def fallen(node: Node) -> bool:
    """Whether the last line has been seen."""
    found = [f for f in node.get("/v1/findings")["findings"] if f["code"] == "79"]
    return any(f["evidence"]["line"] == GOOD and f["component"]["pci"] == "0000:15:00.0" for f in found)
