"""healthd under what its systemd unit grants: the capabilities, the notifications."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from healthd_node import Node, eventually, kmsg_writable

from tests.conftest import skip_or_fail

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "gpu-healthd.service"


def granted() -> str:
    """The unit's capabilities, as setpriv wants them."""
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("CapabilityBoundingSet="))
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in line.partition("=")[2].split())])


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd would hear."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(60)
        yield ear


def test_the_unit_grants_what_healthd_needs(
    make_node: Callable[..., Node], tmp_path: Path, notified: socket.socket
) -> None:
    if os.geteuid() != 0 or not kmsg_writable():
        skip_or_fail("needs root and the machine's kernel log")
    node = make_node()
    command = ["setpriv", "--no-new-privs", f"--bounding-set={granted()}", sys.executable, "-m", "healthd.main"]
    environment = os.environ | {
        "FAKE_NVML_SCENARIO": str(node.scenario),
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "60000000",
    }
    node.process = subprocess.Popen([*command, "--config", str(node.config)], env=environment)
    try:
        assert notified.recv(1000) == b"READY=1"
        eventually(node.socket.exists, "the socket is there")
        eventually(lambda: not node.get("/v1/verdict")["reasons"], lambda: str(node.get("/v1/verdict")))
        assert eventually(lambda: b"WATCHDOG=1" in notified.recv(1000), "the watchdog hears of it")
        assert node.beacons.is_dir()
    finally:
        assert node.stop() == 0
    assert eventually(lambda: b"STOPPING=1" in notified.recv(1000), "systemd hears that it stops")
