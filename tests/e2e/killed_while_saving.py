"""`killed_while_saving.py PLACE VARIANT`: a rank that dies at each thing a save asks of the file system, one after another.

A child saves step 1, then is killed by SIGKILL before its Nth request while it saves again; another loads what is left.
One JSON line per death: where, and what was loaded. A last line when a save got through alive.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from healthd.trainer.adapters.pytorch import TrainingCheckpoints

REQUESTS = {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "shutil.rmtree"}
VARIANTS = {"new": {"keep": 1}, "again": {"keep": 3}, "linked": {"keep": 3, "incremental": True}}
FILE_BYTES = (0, 1, 5_000, 70_000)
Options = dict[str, int]


def rank(place: Path, options: Options) -> tuple[TrainingCheckpoints, torch.nn.Module]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(128, 128)
    model.register_buffer("frozen", torch.ones(128, 128))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingCheckpoints(place, model, optimizer, **options), model


def fill(model: torch.nn.Module, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def save(place: Path, variant: str, arm: Callable[[], None]) -> None:
    checkpoints, model = rank(place, VARIANTS[variant])
    fill(model, 1.0)
    checkpoints.save(1)
    fill(model, 2.0)
    arm()
    checkpoints.save_async(1 if variant == "again" else 2)
    checkpoints.close()


def load(place: Path, variant: str, answer: int) -> None:
    checkpoints, model = rank(place, VARIANTS[variant])
    begin = checkpoints.load_latest()
    values = model.weight.unique().tolist()
    checkpoints.save(9)
    os.write(answer, json.dumps({"begin": begin, "values": values}).encode())


def die_at(number: int, place: Path, tell: int) -> Callable[[], None]:
    """Arm: SIGKILL before the `number`-th request about a file under `place`."""
    requests = itertools.count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in REQUESTS and str(place) in str(arguments[0]) and next(requests) == number:
            os.write(tell, f"{event} {Path(str(arguments[0])).name}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: sys.addaudithook(hook)


def die_writing(size: int, tell: int) -> Callable[[], None]:
    """Arm: the kernel kills the process where a file would grow beyond `size` bytes."""

    def arm() -> None:
        os.write(tell, f"write beyond {size}".encode())
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return arm


def child(deed: Callable[[int], None]) -> tuple[int, str]:
    """Run it in a fork of this process, which has no threads; its wait status, and what it told."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        deed(writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    return os.waitpid(pid, 0)[1], text


def deaths(place: Path, variant: str) -> Iterator[tuple[int, str]]:
    for size in FILE_BYTES if variant == "new" else ():
        yield child(lambda tell, size=size: save(place, variant, die_writing(size, tell)))
    for number in itertools.count(1):
        yield child(lambda tell, number=number: save(place, variant, die_at(number, place, tell)))


def main() -> None:
    place, variant = Path(sys.argv[1]) / "checkpoints", sys.argv[2]
    for status, where in deaths(place, variant):
        code, found = child(lambda tell: load(place, variant, tell))
        died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"where": where, "signal": died, "exit": code, "loaded": json.loads(found or "null")}))
        shutil.rmtree(place)
        if status == 0 and not where.startswith("write"):
            return


if __name__ == "__main__":
    main()
