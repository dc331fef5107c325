# Descriptors and directory entries are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH102, PTH106, PTH108, PTH118, PTH120
"""Lets healthd ask a rank where it is: opens PyTorch's worker server on a UNIX socket beside the rank's page.

The server answers from its own thread, also while the main thread waits in a collective. It needs the interpreter's
lock for some milliseconds a question. Only a process that has imported `torch.distributed` has one, and nothing that
goes wrong here stops training.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.stack_socket import stack_socket_name
from healthd.trainer.process_exit import run_within

SWITCH = "HEALTHD_STACKS"  # 0 switches it off
SHUTDOWN_SECONDS = 2.0

_log = logging.getLogger("healthd.trainer")


def serve_stacks(page: str, environ: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Open the server of this process beside its page.

    Args:
        page: the path of the page; empty: there is none.
        environ: for tests.

    Returns:
        What closes it and removes its socket; it does nothing where there is no server.
    """
    known: Any = sys.modules.get("torch._C._distributed_c10d")
    server_type = getattr(known, "_WorkerServer", None)
    if not page or server_type is None or (os.environ if environ is None else environ).get(SWITCH) == "0":
        return _close_nothing
    try:
        return _open_server(server_type, os.path.dirname(page))
    except Exception as error:  # noqa: BLE001 - torch of any make: training continues
        _log.warning("healthd cannot ask this rank for its stack: %s; training continues", error)
        return _close_nothing


def _close_nothing() -> None:
    """Nothing is open."""


def _open_server(server_type: Callable[[str], Any], directory: str) -> Callable[[], None]:
    """Bind in a private directory, then move the socket out: at no time can another user connect to it.

    The paths go through a descriptor, since a socket's path may have only 107 characters.
    """
    pid = os.getpid()
    name = stack_socket_name(pid, process_start(pid) or 0)
    path, private = os.path.join(directory, name), os.path.join(directory, f"{name}.{os.urandom(4).hex()}.tmp")
    os.mkdir(private, 0o700)
    try:
        descriptor = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            server = server_type(f"/proc/self/fd/{descriptor}/s")
            os.chmod("s", 0o600, dir_fd=descriptor)
            inode = os.stat("s", dir_fd=descriptor, follow_symlinks=False).st_ino
            os.replace("s", path, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(private, "s"))
        os.rmdir(private)

    def close() -> None:
        with contextlib.suppress(OSError):
            if os.lstat(path).st_ino == inode:  # another guard of this process may have replaced it
                os.unlink(path)
        run_within(SHUTDOWN_SECONDS, "stacks", server.shutdown)

    return close
