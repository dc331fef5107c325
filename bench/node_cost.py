"""What the node daemon costs at rest, against a peer on the same fake driver; a scrape; a prolog's question.

    python bench/node_cost.py [--seconds 20] [--gcm PATH]       PATH: the `gcm` program (pip install gpucm, elsewhere)

Every process of healthd counts: main, NVML child, source child. "once" counts a page of a file that several of them map once, "own"
shares it with whatever else maps it on this machine. "as H200" lets the fake driver's calls cost what they
cost on one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.measured_node import (
    HEALTHD,
    LIBRARIES,
    Node,
    build_scenario,
    cpu_seconds,
    fake_nvml,
    list_process_tree,
    memory_mib,
    select_quantile,
    together_mib,
)
from bench.minimum_costs import kmsg_usable

WARM_UP_S = 20.0  # the first minute's tiers are spread over it; by then every call has been made once
ASKED = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--gcm", type=Path)
    options = parser.parse_args()
    print(f"{'at rest':<44} {'CPU, % of a core':>30} {'resident, MiB':>24} {'once':>6} {'own':>6}")
    print(
        f"{'':<44} {'main':>8} {'nvml':>7} {'sources':>7} {'all':>6} {'main':>6} {'nvml':>5} {'src':>5} {'all':>5} {'all':>6} {'all':>6}"
    )
    for gpus, hertz, costs in ((1, 1, False), (8, 1, False), (16, 1, False), (8, 10, False), (8, 1, True)):
        with start_node(gpus, hertz, costs=costs) as node:
            label = f"healthd, {gpus} GPUs at {hertz} Hz{', as H200' if costs else ''}"
            print(f"{label:<44} {at_rest(node.process.pid, options.seconds).line()}")
            if (gpus, hertz, costs) == (8, 1, False):
                asked = time_scrape_and_check(node)
    if options.gcm is not None:
        print(f"{'gcm nvml_monitor, 8 GPUs at 1 Hz':<44} {gcm_at_rest(options.gcm, options.seconds).line()}")
    print(
        f"{'budget, healthd, 8 GPUs at 1 Hz':<44} {'':>8} {'':>7} {'':>7} {'0.50':>6} {'':>6} {'':>5} {'':>5} {'64.0':>5}\n"
    )
    print(asked)


class Rest(NamedTuple):
    """What the processes of a tree use at rest, the topmost first. `together` counts each page of a file once, `own` is their proportional share."""

    cpu_percent: tuple[float, ...]
    resident_mib: tuple[float, ...]
    together_mib: float
    own_mib: float

    def line(self) -> str:
        """One line of the table: the first three processes, and all."""
        cpu = " ".join(f"{share:7.2f}" for share in (*self.cpu_percent, 0.0, 0.0)[:3])
        resident = " ".join(f"{rss:5.1f}" for rss in (*self.resident_mib, 0.0, 0.0)[:3])
        cpus, all_mib = sum(self.cpu_percent), sum(self.resident_mib)
        return f"{cpu} {cpus:6.2f} {resident} {all_mib:5.1f} {self.together_mib:6.1f} {self.own_mib:6.1f}"


def at_rest(pid: int, seconds: float) -> Rest:
    """What it uses over so many seconds, once it has warmed up."""
    time.sleep(WARM_UP_S)
    pids = list_process_tree(pid)
    began, used = time.monotonic(), [cpu_seconds(each) for each in pids]
    time.sleep(seconds)
    passed = time.monotonic() - began
    shares = tuple((cpu_seconds(each) - before) / passed * 100 for each, before in zip(pids, used, strict=True))
    memory = [memory_mib(each) for each in pids]
    return Rest(shares, tuple(rss for rss, _ in memory), together_mib(pids), sum(pss for _, pss in memory))


def of_healthd(seconds: float, gpus: int = 8, hertz: int = 1, *, costs: bool = False) -> Rest:
    """A daemon of its own, started for this."""
    with start_node(gpus, hertz, costs=costs) as node:
        return at_rest(node.process.pid, seconds)


@contextlib.contextmanager
def start_node(gpus: int, hertz: int, *, costs: bool) -> Iterator[Node]:
    """A daemon that reads the machine's kernel log where it may."""
    nvml = {"library": str(fake_nvml().build(LIBRARIES)), "interval_s": 1 / hertz}
    with (
        tempfile.TemporaryDirectory(prefix="bench-healthd-") as place,
        Node(Path(place), "bench", build_scenario(gpus, costs=costs), kmsg=kmsg_usable(), nvml=nvml) as node,
    ):
        yield node


def gcm_at_rest(program: Path, seconds: float) -> Rest:
    """Meta's monitor on the same library, once a second, its sink doing nothing."""
    with tempfile.TemporaryDirectory(prefix="bench-gcm-") as place:
        library = fake_nvml().build(LIBRARIES)
        (Path(place) / "scenario").write_text("".join(f"{line}\n" for line in build_scenario(8, costs=False)))
        environment = {"FAKE_NVML_SCENARIO": f"{place}/scenario", "LD_LIBRARY_PATH": str(library.parent)}
        command = [str(program), "nvml_monitor", "--sink", "do_nothing", "--cluster", "bench", "--log-folder", place]
        command += ["--collect-interval", "1", "--push-interval", "60"]
        process = subprocess.Popen(
            command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return at_rest(process.pid, seconds)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def time_scrape_and_check(node: Node) -> str:
    """A scrape, and a prolog's question from the start of its process to its end."""
    scrapes, size = [], 0
    for _ in range(ASKED):
        began = time.perf_counter()
        size = len(node.get("/metrics"))
        scrapes.append(time.perf_counter() - began)
    checks = []
    command = [str(HEALTHD.with_name("healthctl")), "node", "check", "--socket", f"{node.place}/run/healthd.sock"]
    for _ in range(ASKED):
        began = time.perf_counter()
        subprocess.run(command, check=False, capture_output=True)
        checks.append(time.perf_counter() - began)
    lines = [f"{'asked by others':<44} {'p50':>9} {'p99':>9}   budget"]
    for name, times, budget in (
        (f"scrape of /metrics, {size >> 10} KiB", sorted(scrapes), "no NVML call"),
        ("healthctl node check, whole process", sorted(checks), "≤ 50 ms"),
    ):
        lines.append(
            f"{name:<44} {select_quantile(times, 0.5) * 1000:6.1f} ms {select_quantile(times, 0.99) * 1000:6.1f} ms   {budget}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
