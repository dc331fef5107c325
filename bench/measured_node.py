"""A healthd to be measured: real processes on the fake driver library, with directories of its own."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from typing_extensions import Self

ROOT = Path(__file__).parents[1]
LIBRARIES = ROOT / "build" / "bench"
HEALTHD = Path(sys.executable).parent / "healthd"
# What calls cost on one H200, in µs (a field value 170, and a call asks for two to five); the rest is below 2 µs there.
_ECC = ("ecc_corrected", "ecc_uncorrected", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate")
COSTS = {"temperature": 2, "fields": 700, "nvlink": 100, "margin": 100} | dict.fromkeys(_ECC, 135)


def fake_nvml() -> ModuleType:
    """The builder of the fake library."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "tests" / "nodes" / "fake_nvml" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    return builder


def build_scenario(gpus: int, *, costs: bool) -> list[str]:
    """Eight H100s or another number of them, with or without what a real driver's calls cost."""
    lines = [*fake_nvml().preset("h100x8"), f"gpus {gpus}"]
    return lines + ([f"cost_{name} {us}" for name, us in COSTS.items()] if costs else [])


class Node:
    """Started at once; `with` waits until it answers, and ends it. `log` is the followed file, or None if the machine's own kernel log is read.

    `settings` go over the configuration; without any nobody answers where the remediator should be.
    """

    def __init__(self, place: Path, name: str, lines: Iterable[str], *, kmsg: bool = False, **settings: object) -> None:
        self.place, self.name = place, name
        self.log = None if kmsg else place / "kern.log"
        if self.log is not None:
            self.log.touch()
        config = {
            "node": name,
            "state_dir": str(place / "state"),
            "run_dir": str(place / "run"),
            "beacon_dir": str(place / "beacons"),
            "listen": "127.0.0.1:0",
            "accept_injected": True,
            "kernel_log": {"path": str(self.log), "trust_file": True} if self.log else {},
            "nvml": {"library": str(fake_nvml().build(LIBRARIES)), "interval_s": 1.0},
            "remediator": {"url": "http://127.0.0.1:9", "token_file": str(place / "token")},
        }
        (place / "healthd.yaml").write_text(json.dumps(config | settings))
        (place / "scenario").write_text("".join(f"{line}\n" for line in lines))
        (place / "token").write_text("none\n")
        environment = os.environ | {"FAKE_NVML_SCENARIO": str(place / "scenario")}
        with (place / "log").open("wb") as output:
            command = [str(HEALTHD), "--config", str(place / "healthd.yaml")]
            self.process = subprocess.Popen(command, env=environment, stderr=output)

    def wait(self) -> None:
        """Until it answers.

        Raises:
            SystemExit: it does not within 30 s; with its log.
        """
        deadline = time.monotonic() + 30
        while not (self.place / "run" / "healthd.sock").exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit(f"healthd does not start:\n{(self.place / 'log').read_text()}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def get(self, page: str) -> str:
        """A page, over the UNIX socket."""
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.place / "run" / "healthd.sock"))
        connection.request("GET", page)
        body = connection.getresponse().read().decode()
        connection.close()
        return body

    def metric(self, name: str) -> float:
        """The first sample of that name."""
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0


def list_process_tree(pid: int) -> list[int]:
    """The process and all below it."""
    text = "".join((task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return [pid] + [below for child in text.split() for below in list_process_tree(int(child))]


def cpu_seconds(pid: int) -> float:
    """User and system time, to the nanosecond that the scheduler counts."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident (shared pages in full), and the share that is its own (shared pages by their users)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = [re.search(rf"^{word}:\s+(\d+) kB", text, re.MULTILINE) for word in ("Rss", "Pss")]
    return tuple(int(match[1]) / 1024 if match else 0.0 for match in found)  # type: ignore[return-value]  # two


def together_mib(pids: Iterable[int]) -> float:
    """Resident in all of them, each page of a file once: what a machine loses on which nothing else maps those files."""
    own, files = 0, dict[str, int]()
    for pid in pids:
        mapped: dict[str, int] = {}
        name = ""
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            word, _, rest = line.partition(":")
            if word == "Rss":
                mapped[name] = mapped.get(name, 0) + int(rest.split()[0])
            elif word == "Anonymous":
                own += (kib := int(rest.split()[0]))
                mapped[name] -= kib
            elif re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                name = line[73:].strip()
        for name, kib in mapped.items():
            files[name] = max(kib, files.get(name, 0))
    return (own + sum(files.values())) / 1024


def select_quantile(ordered: list[float], share: float) -> float:
    """That quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
