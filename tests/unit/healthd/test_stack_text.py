"""What torch's server, py-spy and /proc say about a process, as frames."""

from __future__ import annotations

import faulthandler
import json
import tempfile
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.collectors.stack_text import (
    CALLS_CHARS_MAX,
    CALLS_KEPT,
    FRAME_CHARS_MAX,
    FRAMES_MAX,
    parse_kernel_stack,
    parse_open_calls,
    parse_py_spy,
    parse_traceback,
)

DUMP = """Current thread 0x00007fda2b7fe6c0 (most recent call first):
  <no Python frame>

Thread 0x00007fda339286c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Thread 0x00007fda561cdb80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/ann/work/run/train.py", line 36 in train
  File "<string>", line 40 in <module>
"""


def test_the_main_thread_is_listed_last() -> None:
    assert parse_traceback(DUMP) == (
        "<module> (<string>:40)",
        "train (work/run/train.py:36)",
        "all_reduce (torch/distributed/distributed_c10d.py:3252)",
    )


def test_this_python_writes_it_that_way() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        frames = parse_traceback(file.read())
    stop.set()
    thread.join()
    assert frames[-1].startswith("test_this_python_writes_it_that_way (")


@given(st.text() | st.lists(st.sampled_from(DUMP.splitlines())).map("\n".join))
def test_any_text_gives_bounded_printable_frames(text: str) -> None:
    frames = parse_traceback(text)
    assert len(frames) <= FRAMES_MAX
    assert all(frame.isprintable() and len(frame) <= FRAME_CHARS_MAX for frame in frames)


def test_long_and_hostile_frames_are_cut_short() -> None:
    file, function = "/site-packages/x" * 250, "f\x1b[31m" * 80
    lines = [f'  File "{file}", line 1 in {function}'] * 500
    frames = parse_traceback("\n".join(["Thread 0x1 (most recent call first):", *lines]))
    assert len(frames) == FRAMES_MAX
    assert all(len(frame) <= FRAME_CHARS_MAX and "\x1b" not in frame for frame in frames)
    assert frames[0].startswith("f?[31m")


def test_py_spy_names_threads_by_number() -> None:
    frames = [
        {"name": "inner", "filename": "/a/b/c/train.py", "line": 7},
        {"name": "outer", "filename": "t.py", "line": 1},
    ]
    threads = [{"os_thread_id": 8, "frames": frames[1:]}, {"os_thread_id": 7, "frames": frames}]
    assert parse_py_spy(json.dumps(threads), 7) == ("outer (t.py:1)", "inner (b/c/train.py:7)")


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "{}", "[1]", '[{"os_thread_id": 7}]', '[{"os_thread_id": 7, "frames": [{}]}]']
)
def test_other_documents_of_py_spy_give_nothing(text: str) -> None:
    assert parse_py_spy(text, 7) == ()


def test_the_kernels_stack_begins_with_the_state() -> None:
    stack = "[<0>] io_schedule+0x46/0x70\n[<0>] vfs_read+0x1/0x2\nnonsense\n"
    assert parse_kernel_stack(stack, "D", "io_schedule") == (
        "state D (kernel:0)",
        "vfs_read (kernel:0)",
        "io_schedule (kernel:0)",
    )
    assert parse_kernel_stack("", "S", "futex_wait_queue") == ("state S (kernel:0)", "futex_wait_queue (kernel:0)")
    assert parse_kernel_stack("", "R", "0") == ("state R (kernel:0)",)
    assert parse_kernel_stack("", "", "") == ()


def test_open_calls_are_the_oldest_that_have_not_ended() -> None:
    entries = [{"op_id": number, "retired": number < 3} for number in range(100)]
    document = json.loads(parse_open_calls(json.dumps({"version": "2.10", "entries": entries}).encode()))
    assert document["version"] == "2.10"
    assert [each["op_id"] for each in document["entries"]] == list(range(3, 3 + CALLS_KEPT))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"entries": 3}',
        b'{"entries": [3]}',
        b'{"entries": [{"retired": true}]}',
        json.dumps({"entries": [{"name": "x" * CALLS_CHARS_MAX}]}).encode(),
    ],
)
def test_other_documents_have_no_calls(content: bytes) -> None:
    assert parse_open_calls(content) == ""
