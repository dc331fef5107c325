"""A checkpoint of 0.5 GB against `torch.save` + fsync: `python -m bench.checkpoint_io [--before CHECKOUT] [--rounds 9]`.

One rank holds 40 layers of 1024 × 1024 with AdamW, 503 MB. In each round every way saves, then loads from the page cache
and from the disk, in an order drawn anew, so that the noise of a shared machine meets all alike. A table; nothing is asserted.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.measured_node import ROOT

LAYERS, WIDTH = 40, 1024
SETTLE_S = 0.3  # for what a save deletes behind training's back


class Times(NamedTuple):
    """Seconds of one round; `processor`: of the save, all threads."""

    save: float
    processor: float
    load: float
    load_cold: float


class Way:
    """A process that saves and loads its own copy of the same state, one line on its stdin for each round."""

    def __init__(self, name: str, checkout: Path, root: Path, *, plain: bool) -> None:
        """Args: `plain`: by torch.save and torch.load, else by healthd from this checkout."""
        self.name = name
        self.times: list[Times] = []
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        argv = [sys.executable, "-W", "ignore", __file__, "--root", str(root), *(["--plain"] if plain else ["--rank"])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environ["PYTHONPATH"] = os.pathsep.join([str(checkout), str(ROOT)])
        self._process = subprocess.Popen(argv, env=environ, **pipes)  # type: ignore[call-overload]  # of a dict of keywords

    def run_round(self, number: int) -> None:
        """One save and one load; the first round warms up and is not counted."""
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        times = Times(*map(float, self._process.stdout.readline().split()))
        if number:
            self.times.append(times)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        assert self._process.wait() == 0


def measure_seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def drop_cached_pages(root: Path) -> None:
    """Have the next reads of all files come from the disk."""
    for file in (path for path in root.rglob("*") if path.is_file()):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_process(root: Path, *, plain: bool) -> None:
    """Hold the state; save and load it once for each line on stdin, and print the seconds."""
    import torch  # noqa: PLC0415 - the process that only keeps time does without
    import torch.distributed as dist  # noqa: PLC0415 - as above

    from healthd.trainer.adapters.pytorch import TrainingCheckpoints, TrainingState  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, WIDTH)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    file, written = root / "state.pt", root / "written.pt"

    def save_plain(_: int) -> None:
        with written.open("wb") as target:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, target)
            target.flush()
            os.fsync(target.fileno())
        written.rename(
            file
        )  # the one before is deleted only now, as healthd does: freed pages make the next write cheaper

    def load_plain() -> None:
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    checkpoints = TrainingCheckpoints(root, TrainingState(model, optimizer), keep=1)
    save, load = (save_plain, load_plain) if plain else (checkpoints.save, checkpoints.load_latest)
    for line in sys.stdin:
        processor = time.process_time()
        times = [measure_seconds(functools.partial(save, int(line))), time.process_time() - processor]
        time.sleep(SETTLE_S)
        times.append(measure_seconds(load))
        drop_cached_pages(root)
        times.append(measure_seconds(load))
        print(*times, flush=True)
    checkpoints.close()
    dist.destroy_process_group()


def print_rows(ways: list[Way]) -> None:
    """Of each figure the median, the least, and the median over the rounds of the ratio to the first way."""
    print("| | save, s | processor, s | load, cached, s | load, from the disk, s |")
    print("|---|---:|---:|---:|---:|")
    for way in ways:
        cells = []
        for mine, plain in zip(zip(*way.times, strict=True), zip(*ways[0].times, strict=True), strict=True):
            ratio = statistics.median(a / b for a, b in zip(mine, plain, strict=True))
            cells.append(f"{statistics.median(mine):.2f} (least {min(mine):.2f}), **{ratio:.2f}**")
        print(f"| {way.name} | {' | '.join(cells)} |")
    print(f"\nload {os.getloadavg()[0]:.1f}, {len(ways[0].times)} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout of healthd, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()), help="a directory on the disk")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plain or args.rank:
        run_process(args.root, plain=args.plain)
        return
    places = [Path(tempfile.mkdtemp(dir=args.root, prefix="bench-")) for _ in range(3)]
    try:
        ways = [Way("torch.save + fsync, torch.load", ROOT, places[0], plain=True)]
        if args.before:
            ways.append(Way("before", args.before.absolute(), places[1], plain=False))
        ways.append(Way("healthd", ROOT, places[2], plain=False))
        for number in range(args.rounds + 1):
            for way in random.sample(ways, len(ways)):
                way.run_round(number)
        for way in ways:
            way.close()
        print_rows(ways)
    finally:
        for place in places:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
