"""A node for end-to-end tests: a real healthd process, the fake driver library, the machine's kernel log or a file."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.xid_line import format_xid

T = TypeVar("T")

DEADLINE_S = 60.0  # the machine may be busy; a test that waits this long has failed
FAKE_NVML = Path(__file__).parents[1] / "nodes" / "fake_nvml" / "build.py"


def fake_nvml() -> ModuleType:
    """The builder of the fake library."""
    spec = importlib.util.spec_from_file_location("fake_nvml_build", FAKE_NVML)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def eventually(what: Callable[[], T | None], why: str | Callable[[], str], within_s: float = DEADLINE_S) -> T:
    """The first true answer of `what`; fails with `why` after the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {why if isinstance(why, str) else why()}")
        time.sleep(0.02)


def kmsg_writable() -> bool:
    """Whether this machine lets us write its kernel log, and shows us what we wrote."""
    return os.access("/dev/kmsg", os.R_OK | os.W_OK)


class Node:
    """One healthd with its own directories. `kernel_log` is followed; None means the machine's own."""

    def __init__(self, place: Path, library: Path, *, kernel_log: Path | None = None, **config: Any) -> None:
        self.place = place
        self.name = f"n{uuid.uuid4().hex[:10]}"  # of its own: the kernel log is shared by all tests of this machine
        self.kernel_log = kernel_log
        self.scenario = place / "scenario"
        self.beacons = place / "beacons"
        self.socket = place / "run" / "healthd.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self._build = fake_nvml()
        self.gpus("gpus 8")
        document: dict[str, Any] = {
            "node": self.name,
            "state_dir": str(place / "state"),
            "run_dir": str(place / "run"),
            "beacon_dir": str(self.beacons),
            "listen": "127.0.0.1:0",
            "accept_injected": True,
            "kernel_log": {"path": str(kernel_log), "trust_file": True} if kernel_log else {},
            "nvml": {"library": str(library), "interval_s": 0.2, "deadline_s": 5},
        }
        self.config = place / "healthd.yaml"
        self.config.write_text(json.dumps(document | config))
        self.command = [sys.executable, "-m", "healthd.main", "--config", str(self.config)]

    def gpus(self, *lines: str) -> None:
        """What the fake driver shows from now on."""
        self._build.write_scenario(self.scenario, lines)

    def preset(self, product: str) -> list[str]:
        """The scenario of a product, to begin one's own with."""
        lines: list[str] = self._build.preset(product)
        return lines

    def start(self) -> None:
        """Start healthd, and wait until it answers."""
        with (self.place / "log").open("ab") as log:
            environment = os.environ | {"FAKE_NVML_SCENARIO": str(self.scenario)}
            self.process = subprocess.Popen(self.command, stderr=log, stdout=log, env=environment)
        eventually(self._answers, lambda: f"{self.name} answers; its log: {self.log()}")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        """What it said so far."""
        with contextlib.suppress(FileNotFoundError):
            return (self.place / "log").read_text()
        return ""

    def get(self, path: str) -> Any:
        """Ask over the UNIX socket."""
        connection = http.client.HTTPConnection("localhost", timeout=30)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self.socket))
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        return json.loads(body) if answer.headers["Content-Type"] == "application/json" else body.decode()

    def verdict(self) -> Mapping[str, Any]:
        """What it says of itself."""
        return dict(self.get("/v1/verdict"))

    def findings(self) -> dict[str, Mapping[str, Any]]:
        """Active findings by kind; several of one kind are told apart by their GPU's index."""
        found = self.get("/v1/findings")["findings"]
        return {f"{f['check']}/{f['code']}@{f['component'].get('index', '')}".rstrip("@"): f for f in found}

    def xid(self, code: int, gpu: int, *, pid: int | None = None, process: str = "", node: str = "") -> None:
        """Let the kernel log say that GPU number `gpu` had this Xid."""
        text = format_xid(code, f"0000:{0x10 + gpu:02x}:00.0", pid=pid, process=process, detail="made for a test")
        self.kernel_says(mark_injected_line(node or self.name, text))

    def kernel_says(self, text: str) -> None:
        """Write one line: opened anew each time, as the kernel limits the rate of each writer's descriptor."""
        if self.kernel_log is None:
            with Path("/dev/kmsg").open("wb", buffering=0) as kmsg:
                kmsg.write(f"<4>{text}\n".encode())
        else:
            with self.kernel_log.open("a") as log:
                log.write(f"{text}\n")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"healthd ended: {self.log()}"
        try:
            return bool(self.verdict())
        except (OSError, http.client.HTTPException):
            return False

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        self.process = None
        return code

    def close(self) -> None:
        """Leave nothing running."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
