"""slurmrestd over a UNIX socket or TCP, with the newest API version that both sides support.

Slurm's commands do the rest: the API changes nodes from v0.0.39 on (Slurm 23.02), and its requeue, reservation and
topology calls are not tested against a server yet.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from remediator.model.node_location import NodeLocation
from remediator.schedulers.slurm import json_documents
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, NotInstalledError, SlurmError
from remediator.schedulers.slurm.json_documents import DocumentError
from remediator.schedulers.slurm.slurm_commands import SlurmCommands
from remediator.schedulers.slurm.slurm_options import RestOptions
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmJob, SlurmNode

VERSIONS = tuple(f"v0.0.{number}" for number in range(45, 36, -1))  # Slurm 26.05 to 21.08, newest first
CHANGES_NODES_FROM = 39
ANSWER_MAX = 1 << 30  # bytes: squeue of a large cluster with every core of every job
_UNKNOWN_NODE = ("Invalid node name", "Failure to query node", "No nodes to dump")
T = TypeVar("T")


class Slurmrestd:
    """One slurmrestd, and Slurm's commands for what it cannot do."""

    def __init__(self, options: RestOptions, commands: SlurmCommands) -> None:
        self._options = options
        self._commands = commands
        self._url = urlsplit(options.url)
        self._version = options.version

    def nodes(self, due: CommandDeadline) -> list[SlurmNode]:
        """``GET nodes``."""
        return self._read(json_documents.parse_nodes_json, "nodes", due)

    def node(self, name: str, due: CommandDeadline) -> SlurmNode | None:
        """``GET node/NAME``."""
        try:
            found = self._read(json_documents.parse_nodes_json, f"node/{quote(name, safe='')}", due)
        except SlurmError as error:
            if any(word in str(error) for word in _UNKNOWN_NODE):
                return None
            raise
        return next((node for node in found if node.name == name), None)

    def jobs(self, due: CommandDeadline) -> list[SlurmJob]:
        """``GET jobs``: all that Slurm remembers, ended ones too."""
        return self._read(json_documents.parse_jobs_json, "jobs", due)

    def began(self, due: CommandDeadline) -> float | None:
        """By command; unknown if that is not installed."""
        try:
            return self._commands.began(due)
        except NotInstalledError:
            return None

    def drain(self, node: str, reason: str, due: CommandDeadline) -> None:
        """``POST node/NAME``."""
        if self._changes_nodes(due):
            self._change(node, {"state": ["DRAIN"], "reason": reason}, due)
        else:
            self._commands.drain(node, reason, due)

    def takes_lists(self, due: CommandDeadline) -> bool:
        """Only where commands do it: a call of the API changes one node."""
        return not self._changes_nodes(due)

    def drain_list(self, nodes: Sequence[str], reason: str, due: CommandDeadline) -> None:
        """By command."""
        self._commands.drain_list(nodes, reason, due)

    def resume(self, node: str, due: CommandDeadline) -> None:
        """``POST node/NAME``."""
        if self._changes_nodes(due):
            self._change(node, {"state": ["RESUME"]}, due)
        else:
            self._commands.resume(node, due)

    def job(self, name: str, due: CommandDeadline) -> SlurmJob | None:
        """By command."""
        return self._commands.job(name, due)

    def requeue(self, job: str, due: CommandDeadline) -> None:
        """By command."""
        self._commands.requeue(job, due)

    def exclude(self, job: str, nodes: tuple[str, ...], due: CommandDeadline) -> None:
        """By command."""
        self._commands.exclude(job, nodes, due)

    def reservations(self, due: CommandDeadline) -> list[Reservation]:
        """``GET reservations``."""
        return self._read(json_documents.parse_reservations_json, "reservations", due)

    def reserve(self, name: str, nodes: tuple[str, ...], minutes: int, user: str, due: CommandDeadline) -> None:
        """By command."""
        self._commands.reserve(name, nodes, minutes, user, due)

    def release(self, name: str, due: CommandDeadline) -> None:
        """By command."""
        self._commands.release(name, due)

    def topology(self, due: CommandDeadline) -> dict[str, NodeLocation]:
        """By command; unknown if that is not installed."""
        try:
            return self._commands.topology(due)
        except NotInstalledError:
            return {}

    def _changes_nodes(self, due: CommandDeadline) -> bool:
        return int(self._found_version(due).rpartition(".")[2]) >= CHANGES_NODES_FROM

    def _change(self, node: str, what: dict[str, Any], due: CommandDeadline) -> None:
        path = f"/slurm/{self._found_version(due)}/node/{quote(node, safe='')}"
        status, body = self._ask("POST", path, due, msgspec.json.encode(what))
        with contextlib.suppress(msgspec.DecodeError):
            if errors := json_documents.list_document_errors(msgspec.json.decode(body)):
                raise SlurmError(f"slurmrestd: POST {path}: {'; '.join(errors)}")
        if status != http.client.OK:
            raise SlurmError(f"slurmrestd: POST {path}: {_explain_status(status)}")

    def _read(self, parse: Callable[[bytes], T], what: str, due: CommandDeadline) -> T:
        path = f"/slurm/{self._found_version(due)}/{what}"
        status, body = self._ask("GET", path, due)
        try:
            return parse(body)
        except DocumentError as error:
            why = str(error) if status == http.client.OK or body.lstrip()[:1] == b"{" else _explain_status(status)
            raise SlurmError(f"slurmrestd: GET {path}: {why}") from error

    def _found_version(self, due: CommandDeadline) -> str:
        for version in VERSIONS if not self._version else ():
            status, _ = self._ask("GET", f"/slurm/{version}/ping", due)
            if status in (401, 403):
                raise SlurmError(f"slurmrestd: {_explain_status(status)}")
            if status != http.client.NOT_FOUND:
                self._version = version
                break
        if not self._version:
            raise SlurmError(
                f"slurmrestd has no API from {VERSIONS[-1]} to {VERSIONS[0]}; start it with one of these plugins"
            )
        return self._version

    def _ask(self, method: str, path: str, due: CommandDeadline, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body.

        Raises:
            SlurmError: no connection, no complete answer in time, or the token cannot be read.
        """
        headers = {"Accept": "application/json"} | self._token()
        if body is not None:
            headers["Content-Type"] = "application/json"
        raw: socket.socket | None = None
        try:
            raw = self._connected(due)
            cut = threading.Timer(due.left(), _shut_down_socket, [raw])  # total time: each read alone may be quick
            cut.daemon = True
            cut.start()
            try:
                connection = http.client.HTTPConnection(self._url.hostname or "localhost")
                connection.sock = raw
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                found = answer.read(ANSWER_MAX)
                if answer.length or not due.left():
                    raise ConnectionError("the answer is incomplete")
                return answer.status, found
            finally:
                cut.cancel()
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = f"no answer within {due.seconds:g} s" if not due.left() else str(error) or type(error).__name__
            raise SlurmError(f"slurmrestd at {self._options.url}: {late}; check that it is running") from error
        finally:
            if raw is not None:
                raw.close()

    def _connected(self, due: CommandDeadline) -> socket.socket:
        wait = max(due.left(), 0.001)
        if self._url.scheme == "unix":
            raw = socket.socket(socket.AF_UNIX)
            raw.settimeout(wait)
            try:
                raw.connect(self._url.path)
            except OSError:
                raw.close()
                raise
            return raw
        port = self._url.port or (443 if self._url.scheme == "https" else 6820)
        raw = socket.create_connection((self._url.hostname or "localhost", port), wait)
        if self._url.scheme == "https":
            return ssl.create_default_context().wrap_socket(raw, server_hostname=self._url.hostname)
        return raw

    def _token(self) -> dict[str, str]:
        if not self._options.token_file:
            return {}
        try:
            token = Path(self._options.token_file).read_text().strip()
        except OSError as error:
            raise SlurmError(f"scheduler.slurm.rest.token_file: {error.filename}: {error.strerror}") from error
        named = {"X-SLURM-USER-NAME": self._options.user} if self._options.user else {}
        return named | {"X-SLURM-USER-TOKEN": token.removeprefix("SLURM_JWT=")}


def _shut_down_socket(raw: socket.socket) -> None:
    with contextlib.suppress(OSError):
        raw.shutdown(socket.SHUT_RDWR)


def _explain_status(status: int) -> str:
    if status in (401, 403):
        return f"access denied (status {status}); see scheduler.slurm.rest.user and token_file"
    return f"status {status}"
