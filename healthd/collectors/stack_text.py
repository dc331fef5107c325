"""Parses stacks as torch's worker server, py-spy and /proc write them. Pure; the input is untrusted and bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

FRAMES_MAX, FRAME_CHARS_MAX = 64, 160
CALLS_KEPT, CALLS_CHARS_MAX = 16, 32 << 10  # the oldest open calls: the others wait behind them
_PACKAGES = re.compile(r"(?:/lib(?:64)?/python3\.\d+)?/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\):")
_FRAME = re.compile(r'  File "(.{1,4096})", line (\d{1,9}|\?\?\?) in (.{1,500})')
_KERNEL_FRAME = re.compile(r"\[<[0-9a-fx]+>\] ([\w.]{1,100})(?:\+0x.*)?", re.ASCII)
_PARTS_KEPT = 3  # of a file that is in no package


def parse_traceback(text: str) -> tuple[str, ...]:
    """Return the main thread's frames of faulthandler's text: its last thread, which it lists last.

    Outermost frame first; empty if there is none.
    """
    frames: list[str] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            frames = []
        elif len(frames) < FRAMES_MAX and (match := _FRAME.fullmatch(line)):
            frames.append(_format_frame(match[3], match[1], match[2].replace("?", "") or "0"))
    return _bound_frames(frames)


def parse_py_spy(text: str, pid: int) -> tuple[str, ...]:
    """Return the main thread's frames of `py-spy dump --json`; empty if it is not such a document."""
    try:
        threads = json.loads(text)
        main = next(each for each in threads if each["os_thread_id"] == pid)
        frames = [
            _format_frame(str(each["name"]), str(each["filename"]), str(int(each["line"])))
            for each in main["frames"][:FRAMES_MAX]
        ]
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return ()
    return _bound_frames(frames)


def parse_open_calls(content: bytes) -> str:
    """Return a flight recorder's document with its oldest open calls only; empty if it has none, or is invalid."""
    try:
        document = json.loads(content)
        calls = [each for each in document.pop("entries") if not each.get("retired")][:CALLS_KEPT]
        text = json.dumps({**document, "entries": calls})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return text if calls and len(text) <= CALLS_CHARS_MAX else ""


def parse_kernel_stack(stack: str, state: str, wchan: str) -> tuple[str, ...]:
    """Return what /proc tells of a thread, as frames: its state, then where it is in the kernel."""
    frames = [f"{match[1]} (kernel:0)" for line in stack.splitlines() if (match := _KERNEL_FRAME.fullmatch(line))]
    if not frames and re.fullmatch(r"[A-Za-z_]\w{1,99}", wchan, re.ASCII):
        frames = [f"{wchan} (kernel:0)"]
    return _bound_frames([*frames, f"state {state} (kernel:0)"]) if state else ()


def _format_frame(function: str, file: str, line: str) -> str:
    in_package = _PACKAGES.split(file)[1:]
    short = in_package[-1] if in_package else "/".join(file.split("/")[-_PARTS_KEPT:])
    text = f"({short[-FRAME_CHARS_MAX // 2 :]}:{line})"
    return f"{function[: FRAME_CHARS_MAX - len(text) - 1]} {text}"


def _bound_frames(inner_first: Sequence[str]) -> tuple[str, ...]:
    """Return the innermost frames, outermost first, without characters that a terminal could act on."""
    kept = inner_first[:FRAMES_MAX]
    return tuple("".join(c if c.isprintable() and c.isascii() else "?" for c in frame) for frame in reversed(kept))
