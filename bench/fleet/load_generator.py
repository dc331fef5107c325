"""The load generator in C: Python on the other core delays what it measures. Prepares its file, compiles it, runs it."""

from __future__ import annotations

import ipaddress
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bench.fleet.link import build_request
from bench.fleet.options import address_of, node_name, token_of
from bench.fleet.report_content import WINDOWS_NEW, WINDOWS_TOLD, Words

SOURCE = Path(__file__).with_suffix(".c")
SEQUENCE, NOW, STEP, WINDOW, PACKED_SEQUENCE, PACKED_BASE, PACKED_NOW, RANK_STEP, RANK_NOW, WINDOW_NUMBER = range(10)
# numbers to be replaced
_SEQUENCE, _STEP, _FIRST_WINDOW = 1_111_111_111, 222_222_222, 333_333_300
_SEQUENCE_64, _BASE, _FIRST_NUMBER = 0x6162636465666768, 0x7172737475767778, 0x51525354
_NOW = 1_888_888_888.125
_TEXTS = (
    (str(_SEQUENCE).encode(), SEQUENCE, 0),
    (str(_NOW).encode(), NOW, 0),
    (str(_STEP).encode(), STEP, 0),
    *((str(_FIRST_WINDOW + n).encode(), WINDOW, n - WINDOWS_TOLD) for n in range(WINDOWS_TOLD)),
)
_PACKED = (
    (struct.pack(">Q", _SEQUENCE_64), PACKED_SEQUENCE, 0),
    (struct.pack(">Q", _BASE), PACKED_BASE, 0),
    (struct.pack(">d", _NOW), PACKED_NOW, 0),
    (struct.pack("<q", _STEP), RANK_STEP, 0),
    (struct.pack("<d", _NOW), RANK_NOW, 0),
    *((struct.pack("<I", _FIRST_NUMBER + n), WINDOW_NUMBER, n - WINDOWS_NEW) for n in range(WINDOWS_NEW)),
)


class LoadError(Exception):
    """The generator cannot be compiled, or failed."""


class LoadResult(msgspec.Struct, frozen=True):
    """Counts of what was due after the fleet had joined; latencies from a report's due time, and the generator's own lateness.

    Both in ms: the median, the 99th percentile and the worst.
    """

    sent: int
    whole: int  # of these, reports instead of heartbeats
    answered: int
    refused: int  # with another status than 200
    broken: int  # connections lost while a report was unanswered
    waiting: int  # due and unanswered at the end
    latency_ms: tuple[float, float, float]
    lateness_ms: tuple[float, float, float]


class LoadShape(msgspec.Struct, frozen=True):
    """So many nodes that report for `seconds`; what is due in the first `join_s` does not count.

    Without `heartbeats` every report is a whole one, as of an older healthd. `at_once`: all nodes connect at one moment.
    """

    nodes: int
    interval_s: float
    seconds: float
    join_s: float
    heartbeats: bool = True
    at_once: bool = False


def run_load(place: Path, port: int, shape: LoadShape) -> LoadResult:
    """Run the generator.

    Raises:
        LoadError: no C compiler, or the generator failed.
    """
    if (compiler := shutil.which("cc")) is None:
        raise LoadError("no C compiler 'cc' here; install one (Debian: apt-get install gcc)")
    program, file = place / "load_generator", place / "requests"
    subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True)
    with file.open("wb") as out:
        out.write(struct.pack("<I", shape.nodes))
        for number in range(shape.nodes):
            out.write(_encode_node(number, heartbeats=shape.heartbeats))
    spread_s = 0.0 if shape.at_once else shape.interval_s
    numbers = (port, shape.interval_s, shape.seconds, shape.join_s, spread_s)
    done = subprocess.run([program, file, *map(str, numbers)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadError(done.stderr.strip())
    return msgspec.json.decode(done.stdout, type=LoadResult)


def _encode_node(number: int, *, heartbeats: bool) -> bytes:
    name = node_name(number)
    words = Words(number, name, f"agent-{number}", 0.0)
    token, path = token_of(name), f"/v1/nodes/{name}"
    report = words.report_at(_SEQUENCE, _NOW, _STEP, _FIRST_WINDOW)
    parts = [_encode_request(build_request("POST", f"{path}/report", token, report), _TEXTS)]
    if heartbeats:
        packed = words.heartbeat_at(_BASE, _SEQUENCE_64, _NOW, _STEP, _FIRST_NUMBER)
        parts.append(_encode_request(_heartbeat_request(f"{path}/heartbeat", token, packed), _PACKED))
    else:
        parts.append(struct.pack("<II", 0, 0))
    return struct.pack("<I", int(ipaddress.ip_address(address_of(number)))) + b"".join(parts)


def _heartbeat_request(path: str, token: str, body: bytes) -> bytes:
    """As healthd's HTTP client writes it."""
    lines = (
        f"POST {path} HTTP/1.1", "Host: localhost", "Accept-Encoding: identity", f"Content-Length: {len(body)}",
        f"Authorization: Bearer {token}", "Content-Type: application/msgpack", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode() + body


def _encode_request(request: bytes, kinds: Iterable[tuple[bytes, int, int]]) -> bytes:
    fields = [(at, len(text), kind, argument) for text, kind, argument in kinds for at in _find_all(request, text)]
    head = struct.pack("<II", len(request), len(fields))
    return head + b"".join(struct.pack("<IIii", *field) for field in fields) + request


def _find_all(request: bytes, text: bytes) -> Iterator[int]:
    at = request.find(text)
    while at >= 0:
        yield at
        at = request.find(text, at + 1)
