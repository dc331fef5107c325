"""The load generator in C: Python on the other core delays what it measures. Prepares its file, compiles it, runs it."""

from __future__ import annotations

import ipaddress
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.fleet.link import build_request
from bench.fleet.options import address_of, node_name, token_of
from bench.fleet.report_content import WINDOWS_TOLD, Words

SOURCE = Path(__file__).with_suffix(".c")
SEQUENCE, NOW, STEP, WINDOW = range(4)  # as there
_SEQUENCE, _STEP, _FIRST_WINDOW = 1_111_111_111, 222_222_222, 333_333_300  # numbers to be replaced
_NOW = 1_888_888_888.125


class LoadError(Exception):
    """The generator cannot be compiled, or failed."""


class LoadResult(msgspec.Struct, frozen=True):
    """Counts of what was due after the fleet had joined; latencies from a report's due time, and the generator's own lateness.

    Both in ms: the median, the 99th percentile and the worst.
    """

    sent: int
    answered: int
    refused: int  # with another status than 200
    broken: int  # connections lost while a report was unanswered
    waiting: int  # due and unanswered at the end
    latency_ms: tuple[float, float, float]
    lateness_ms: tuple[float, float, float]


def run_load(place: Path, port: int, nodes: int, interval_s: float, seconds: float, join_s: float) -> LoadResult:
    """Report from so many nodes for `seconds`; what was due in the first `join_s` does not count.

    Raises:
        LoadError: no C compiler, or the generator failed.
    """
    if (compiler := shutil.which("cc")) is None:
        raise LoadError("no C compiler 'cc' here; install one (Debian: apt-get install gcc)")
    program, file = place / "load_generator", place / "requests"
    subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True)
    with file.open("wb") as out:
        out.write(struct.pack("<I", nodes))
        for number in range(nodes):
            out.write(_encode_node(number))
    numbers = (port, interval_s, seconds, join_s)
    done = subprocess.run([program, file, *map(str, numbers)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadError(done.stderr.strip())
    return msgspec.json.decode(done.stdout, type=LoadResult)


def _encode_node(number: int) -> bytes:
    name = node_name(number)
    words = Words(number, name, f"agent-{number}", 0.0)
    body = words.report_at(_SEQUENCE, _NOW, _STEP, _FIRST_WINDOW)
    request = build_request("POST", f"/v1/nodes/{name}/report", token_of(name), body)
    fields = list(_find_fields(request))
    head = struct.pack("<III", int(ipaddress.ip_address(address_of(number))), len(request), len(fields))
    return head + b"".join(struct.pack("<IIii", *field) for field in fields) + request


def _find_fields(request: bytes) -> Iterator[tuple[int, int, int, int]]:
    kinds = [(str(_SEQUENCE), SEQUENCE, 0), (str(_NOW), NOW, 0), (str(_STEP), STEP, 0)]
    kinds += [(str(_FIRST_WINDOW + n), WINDOW, n - WINDOWS_TOLD) for n in range(WINDOWS_TOLD)]
    for text, kind, argument in kinds:
        at = request.find(text.encode())
        while at >= 0:
            yield at, len(text), kind, argument
            at = request.find(text.encode(), at + 1)
