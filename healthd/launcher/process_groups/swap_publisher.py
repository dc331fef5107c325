"""Hands a job's swaps to this node's healthd, which reports them to the controller. Best effort.

A thread of its own sends: the launcher never waits for it, and a node without healthd costs one failed connection a
minute. All swaps are sent again each minute, so that a restarted healthd knows them again. A job without swaps sends
none: then healthd knows whose job it is, should its ranks on this node be the first that are lost.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from healthd.launcher import stderr_writer
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.process_groups.swap_records import SwapRecords
from vocabulary.daemon_socket import NoResponseError, call_daemon
from vocabulary.messages.swap_messages import SWAPS_PATH

REPEAT_SECONDS = 60.0  # within healthd's `KEPT_S`
PAUSE_SECONDS = 1.0  # between two messages: the events of one swap come within less
TIMEOUT_SECONDS = 3.0


class SwapPublisher(contextlib.AbstractContextManager[None]):
    """Follows a journal while it is entered."""

    def __init__(self, journal: LaunchJournal, job: str, socket_path: str) -> None:
        self._path = socket_path
        self._journal = journal
        self._records = SwapRecords(job)
        self._body = msgspec.json.encode(self._records.message())
        self._changed, self._ended = threading.Event(), threading.Event()
        self._refused = ""
        self._thread = threading.Thread(target=self._run, name="launcher-swaps", daemon=True)

    def __enter__(self) -> None:
        for event in self._journal.events():  # of the launcher before a requeue
            self.take(event)
        self._journal.observer = self.take
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End the thread, without waiting for it."""
        self._journal.observer = None
        self._ended.set()
        self._changed.set()

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event of the job. Does not wait."""
        if self._records.take(event):
            self._body = msgspec.json.encode(self._records.message())
            self._changed.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(REPEAT_SECONDS)
            self._changed.clear()
            if not self._ended.is_set():
                self._send(self._body)
                self._ended.wait(PAUSE_SECONDS)

    def _send(self, body: bytes) -> None:
        try:
            refused = post_swaps(self._path, body)
        except NoResponseError:
            return  # no healthd here, or a busy one; the gate has said so
        if refused and refused != self._refused and self._records.swaps:
            stderr_writer.write_launcher_line(f"the job's page will not show its swaps: healthd answers {refused}")
        self._refused = refused if self._records.swaps else ""


def find_own_socket(template: str, nodes: Sequence[str], *, local: bool) -> str:
    """Return the path of this node's healthd socket; `{node}` in it stands for the node's name.

    Args:
        template: as configured.
        nodes: those of the allocation.
        local: all of them are this machine.
    """
    own = os.environ.get("HEALTHD_NODE") or os.environ.get("SLURMD_NODENAME")
    return template.replace("{node}", own or (nodes[0] if local and nodes else socket.gethostname()))


def post_swaps(path: str, body: bytes, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """Send them to the healthd at this socket; return its refusal, empty if it took them.

    Raises:
        NoResponseError: there is no usable answer.
    """
    status, said = call_daemon(path, SWAPS_PATH, timeout_seconds, body)
    return "" if status == HTTPStatus.OK else f"{status}: {said[:300].decode(errors='replace')}"
