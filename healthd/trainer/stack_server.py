# Descriptors and directory entries are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH102, PTH106, PTH108, PTH118, PTH120
"""Lets healthd ask a rank where it is: opens PyTorch's worker server on a UNIX socket beside the rank's page.

The server answers from its own thread, also while the main thread waits in a collective. It needs the interpreter's
lock for some milliseconds a question. Only a process that has imported `torch.distributed` has one, and nothing that
goes wrong here stops training.

A server is never shut down, nor its object freed: both wait for its threads while they hold the interpreter's lock,
which freezes the process if one of them has just begun or is answering. A process has one for each directory.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.stack_socket import stack_socket_name

SWITCH = "HEALTHD_STACKS"  # 0 switches it off

_log = logging.getLogger("healthd.trainer")


def serve_stacks(page: str, environ: Mapping[str, str] | None = None) -> None:
    """Open the server of this process beside its page, unless it is open; its socket is removed at exit.

    Args:
        page: the path of the page; empty: there is none.
        environ: for tests.
    """
    server_type = find_server_type()
    if not page or server_type is None or (os.environ if environ is None else environ).get(SWITCH) == "0":
        return
    pid = os.getpid()
    try:
        path = os.path.join(os.path.dirname(page), stack_socket_name(pid, process_start(pid) or 0))
        if not os.path.lexists(path):
            _open_server(server_type, path)
            atexit.register(_remove_socket, path, pid)
    except Exception as error:  # noqa: BLE001 - torch of any make: training continues
        _log.warning("healthd cannot ask this rank for its stack: %s; training continues", error)


def find_server_type() -> Callable[[str], Any] | None:
    """Return torch's worker server, which takes the path of its socket; None without `torch.distributed`."""
    known: Any = sys.modules.get("torch._C._distributed_c10d")
    return getattr(known, "_WorkerServer", None)


def _open_server(server_type: Callable[[str], Any], path: str) -> None:
    """Bind in a private directory, then move the socket out: at no time can another user connect to it.

    The paths go through a descriptor, since a socket's path may have only 107 characters.
    """
    private = f"{path}.{os.urandom(4).hex()}.tmp"
    os.mkdir(private, 0o700)
    try:
        descriptor = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            server = server_type(f"/proc/self/fd/{descriptor}/s")
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))  # never freed: see above
            os.chmod("s", 0o600, dir_fd=descriptor)
            os.replace("s", path, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(private, "s"))
        os.rmdir(private)


def _remove_socket(path: str, pid: int) -> None:
    """Remove the socket; a forked child that exits leaves it to its parent."""
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.unlink(path)
