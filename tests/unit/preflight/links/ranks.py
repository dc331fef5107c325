"""Runs tests of peers for real: imports torch once, then forks one process for each rank of each request.

    python ranks.py FOLDER

A request is one line of JSON on standard input: the test, the level, seconds, how many ranks, rank → fault, and whether the
ranks have a simulated GPU each. The answer is one line
with the results of every rank. A request with `until`, rank → text, is for ranks that hang: once each of these has announced
its text, all are killed, and the answer is what every rank announced.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import msgspec
import pytest
import torch
import torch.distributed as dist

from preflight.check_context import Context, Device
from preflight.checks.load_products import LoadSize
from preflight.execution.worker import build_exception_result
from preflight.results import Result
from tests.unit.preflight.simulated_cuda import DeviceMapping, install_cuda


def rank_of(folder: Path, request: dict, rank: int) -> list[Result]:
    count = request["ranks"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), count), rank=rank, world_size=count)
    with pytest.MonkeyPatch.context() as patch:
        quicken_power_steps(patch)
        if not request["cuda"]:
            return results_of(folder, request, rank, "cpu")
        state = install_cuda(patch, count)
        patch.setattr("preflight.checks.pair_exchange.GPU_BYTES", 1 << 20)
        patch.setattr("preflight.checks.collectives.GPU_SIZES", {"gate": (1 << 20,)})
        patch.setattr(dist, "batch_isend_irecv", start_each)
        with DeviceMapping(state):
            torch.cuda.set_device(rank)
            results = results_of(folder, request, rank, "cuda")
    if state.contexts != {rank}:
        raise RuntimeError(f"rank {rank} has used the GPUs {sorted(state.contexts)}")
    return results


def start_each(operations: list[dist.P2POp]) -> list[dist.Work]:
    """Before torch 2.7, gloo has no batches for the tensors of a GPU."""
    return [each.op(each.tensor, each.peer, each.group) for each in operations]


def quicken_power_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("preflight.checks.power_steps.HALVES_S", (0.02, 0.01))
    patch.setattr("preflight.checks.power_steps.HOST_SIZE", LoadSize("float32", 64, 2))
    patch.setattr("preflight.checks.power_steps.GPU_SIZE", LoadSize("bfloat16", 128, 2))
    patch.setattr("preflight.checks.sensor_watch.READ_EVERY_S", 0.005)


def results_of(folder: Path, request: dict, rank: int, kind: str) -> list[Result]:
    count = request["ranks"]
    devices = tuple(
        Device(
            name=f"{kind}:{index}",
            torch_name="cpu" if kind == "cpu" else f"cuda:{index}",
            index=index,
            label="host memory",
            memory_bytes=32 << 20,
        )
        for index in range(count)
    )
    check = importlib.import_module(f"preflight.checks.{request['test']}")
    context = Context(
        device=devices[rank],
        devices=devices,
        level=request["level"],
        seconds=request["seconds"],
        fault=request["faults"].get(str(rank), ""),
        note=lambda text: announce(folder, rank, text),
    )
    try:
        results = list(getattr(check, f"check_{request['test']}")(context))
    except RuntimeError as error:
        results = [build_exception_result(request["test"], error, devices[rank].name)]
    dist.barrier()
    return results


def announce(folder: Path, rank: int, text: str) -> None:
    with (folder / f"{rank}.notes").open("a") as file:
        file.write(f"{text}\n")


def announced(folder: Path, ranks: int) -> list[list[str]]:
    files = [folder / f"{rank}.notes" for rank in range(ranks)]
    return [file.read_text().splitlines() if file.exists() else [] for file in files]


def watch(folder: Path, request: dict, children: list[int]) -> list[list[str]]:
    deadline = time.monotonic() + 60
    while True:
        notes = announced(folder, request["ranks"])
        there = all(any(text in note for note in notes[int(rank)]) for rank, text in request["until"].items())
        if there or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return notes


def answer(folder: Path, request: dict) -> list:
    folder.mkdir()
    children = []
    for rank in range(request["ranks"]):
        if not (child := os.fork()):
            code = 1
            try:
                (folder / f"{rank}.json").write_bytes(msgspec.json.encode(rank_of(folder, request, rank)))
                code = 0
            except BaseException:  # noqa: BLE001 - a forked child must never return into its parent's loop
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    if request["until"]:
        return watch(folder, request, children)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise RuntimeError(f"a rank failed: {request}")
    return [result for rank in range(request["ranks"]) for result in json.loads((folder / f"{rank}.json").read_text())]


if __name__ == "__main__":
    for number, line in enumerate(sys.stdin):
        print(json.dumps(answer(Path(sys.argv[1]) / str(number), json.loads(line))), flush=True)
