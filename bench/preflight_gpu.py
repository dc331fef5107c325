"""What the GPU kernels of preflight do to a real card: `python bench/preflight_gpu.py [--device N] [--json FILE]`.

One table; nothing is asserted. Runs from a plain copy of the tree with torch, triton and nvidia-ml-py installed and
nothing else. Exit codes: 0 measured, 1 partly, 2 something to install or free first, 3 no GPU here. `--interpret` does a tiny
version of everything on the processor, to show that it works.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.gpu.table import Row, Scale

MEASURED, PARTLY, NOT_READY, NO_GPU = 0, 1, 2, 3
STOPPED = "STOPPED"
RATED = ("address", "random", "walking ones", "checkerboard", "modulo 20", "random, scattered rows")


def main() -> int:
    """Measure, print, and say by the exit code whether there was anything to measure."""
    parser = argparse.ArgumentParser(description="Rates, coverage and detection of preflight's GPU kernels.")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="the GPU, as torch counts them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--interpret", action="store_true", help="tiny, on the processor, without a GPU")
    wanted = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if importlib.util.find_spec("torch") is None:
        return _leave(NOT_READY, "torch is missing: pip install torch triton nvidia-ml-py")
    if not wanted.interpret and (why := _no_gpu(wanted.device)):
        return _leave(NO_GPU, why)
    if importlib.util.find_spec("triton") is None:
        return _leave(NOT_READY, "triton is missing: pip install triton (a CUDA build of torch brings it)")
    if wanted.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
    from bench.gpu.table import CARD, TINY, render_rows  # noqa: PLC0415 - needs what was just looked for

    scale = TINY if wanted.interpret else CARD._replace(device=f"cuda:{wanted.device}")
    rows = list(_measured(scale))
    print(render_rows(rows))
    if wanted.json:
        wanted.json.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return PARTLY if any(row.name == STOPPED for row in rows) else MEASURED


def _no_gpu(number: int) -> str:
    import torch  # noqa: PLC0415 - looked for first

    if not torch.cuda.is_available():
        return "no GPU that torch can use here, nothing measured (--interpret shows a tiny run on the processor)"
    if number >= torch.cuda.device_count():
        return f"no GPU {number}: torch sees {torch.cuda.device_count()}, counted from 0"
    torch.cuda.set_device(number)
    return ""


def _measured(scale: Scale) -> Iterator[Row]:
    import torch  # noqa: PLC0415 - looked for first

    from bench.gpu.readings import Readings  # noqa: PLC0415 - the same
    from bench.gpu.table import Row  # noqa: PLC0415 - the same
    from preflight.kernels.digest_platform import describe_platform  # noqa: PLC0415 - the same

    name, uuid = "processor, interpreted", ""
    if scale.device.startswith("cuda"):
        about = torch.cuda.get_device_properties(scale.device)
        name, uuid = about.name, f"GPU-{getattr(about, 'uuid', '')}"
    readings = Readings(uuid)
    yield Row("device", name, note=describe_platform(scale.device))
    if said := readings.neighbours():
        yield Row("device", "", note=said)
    sections = (("memory", _memory(scale)), ("products", _products(scale)), ("other arithmetic", _other(scale)))
    for title, section in sections:
        began = time.perf_counter()
        yield from _guarded(title, section)
        yield Row("time", title, time.perf_counter() - began, "s", note="with compiling and measuring")
    yield from readings.rows()


def _guarded(title: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, and one line in place of those that the card refused."""
    import torch  # noqa: PLC0415 - looked for first

    from bench.gpu.table import Row  # noqa: PLC0415 - the same

    try:
        yield from rows
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    except torch.OutOfMemoryError:
        yield Row(title, STOPPED, note="out of memory; end what else uses this GPU and run again")
    except Exception as error:  # noqa: BLE001 - torch, Triton and the driver each have classes of their own
        line = next(iter(str(error).splitlines()), "")
        yield Row(title, STOPPED, note=f"{type(error).__name__}: {line}; see the kernel log for an Xid")


def _memory(scale: Scale) -> Iterator[Row]:
    from bench.gpu import arithmetic_rows as arithmetic  # noqa: PLC0415 - not before triton was looked for
    from bench.gpu import memory_rows as memory  # noqa: PLC0415 - the same
    from bench.gpu.table import Row  # noqa: PLC0415 - the same
    from preflight.kernels.memory_patterns import FULL  # noqa: PLC0415 - the same

    heat = arithmetic.prepare_heat(scale)
    got = memory.allocate_tested_memory(scale)
    yield Row("whole card", "taken", got.taken_bytes / 1e9, "GB", got.coverage, str(got))
    if not got.pieces:
        yield Row("memory", STOPPED, note="too little memory is free; end what else uses this GPU and run again")
        return
    probe = max((piece.memory for piece in got.pieces), key=len)[: scale.probe_bytes // 8]
    ceiling, rows = memory.measure_ceilings(scale, probe)
    yield from rows
    for pattern in FULL:
        if pattern.name in RATED:
            yield from memory.pattern_rows(scale, probe, ceiling, pattern)
    yield from memory.whole_rows(scale, got, heat)
    yield memory.fault_row(scale, got)


def _products(scale: Scale) -> Iterator[Row]:
    from bench.gpu import arithmetic_rows as arithmetic  # noqa: PLC0415 - not before triton was looked for

    for kind in arithmetic.all_kinds():
        yield from arithmetic.rate_rows(scale, kind)


def _other(scale: Scale) -> Iterator[Row]:
    from bench.gpu import arithmetic_rows as arithmetic  # noqa: PLC0415 - not before triton was looked for

    yield arithmetic.opinion_row(scale)
    yield from arithmetic.special_rows(scale)
    yield from arithmetic.fault_rows(scale)


def _leave(code: int, why: str) -> int:
    print(why, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
