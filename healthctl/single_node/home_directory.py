"""The directory of a single-node cluster: its layout, and the configuration of the two programs."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any

import msgspec

from healthctl.exit_codes import Failure
from healthctl.single_node.private_files import (
    FILE_MODE,
    FOLDER_MODE,
    create_if_missing,
    explain_untrusted_directory,
    write_new,
)

SOCKET_PATH_MAX = 107  # for a UNIX socket, in bytes
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - trainers' pages are memory-backed files; healthd checks owner and mode
# Excludes every action that would take the machine away from its user.
ORDERS = ("checkpoint_then_eject", "checkpoint_then_stop", "revert", "abort", "run_preflight", "collect_evidence")


class ServicePorts(msgspec.Struct, frozen=True):
    """Ports of the remediator and of healthd, on 127.0.0.1."""

    remediator: int
    healthd: int


class RunningInstance(msgspec.Struct, frozen=True):
    """What the running instance records for later ones."""

    pid: int
    url: str
    token_file: str


class HomeDirectory:
    """One directory. Creating the object writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_dir = path / "log"
        self._database_file = path / "remediator.db"
        self.remediator_config = path / "remediator.yaml"
        self.healthd_config = path / "healthd.yaml"
        self.token_file = path / "tokens" / "admin"
        self.node_token_file = path / "tokens" / "node"
        self.socket = path / "run" / "healthd.sock"
        self.beacons = SHARED_MEMORY / f"gpu-healthd-up-{os.geteuid()}"

    @property
    def database(self) -> str:
        """The database URL."""
        return f"sqlite:///{self._database_file}"

    def prepare(self) -> bool:
        """Create the directory with access only for this user. Returns whether it existed with a history.

        Raises:
            Failure: it cannot be created, its path is too long for a socket, or other users have access.
        """
        if len(os.fsencode(self.socket)) > SOCKET_PATH_MAX:
            raise Failure(f"{self.path}: the path is too long for a UNIX socket; use a shorter --dir")
        try:
            for folder in (self.path, self.token_file.parent):
                folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
                if trouble := explain_untrusted_directory(folder, os.geteuid()):
                    raise Failure(trouble)
            create_if_missing(self._database_file)
            return self._database_file.stat().st_size > 0
        except OSError as error:
            raise Failure(
                f"{error.filename or self.path}: cannot be used: {error.strerror}; use another --dir"
            ) from None

    def take(self) -> IO[str]:
        """Lock the directory against other instances, as long as the returned file stays open.

        Raises:
            Failure: another instance runs (named in the message), or the directory cannot be written.
        """
        try:
            way = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.fdopen(os.open(self.path / "up.lock", way, FILE_MODE), "a+")
        except OSError as error:
            raise Failure(f"{error.filename}: cannot be written: {error.strerror}; use another --dir") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(self._taken(lock)) from None
        return lock

    def say(self, lock: IO[str], running: RunningInstance) -> None:
        """Record this instance for others."""
        lock.truncate(0)
        lock.write(msgspec.json.encode(running).decode())
        lock.flush()

    def _taken(self, lock: IO[str]) -> str:
        lock.seek(0)
        try:
            found = msgspec.json.decode(lock.read(), type=RunningInstance)
        except msgspec.DecodeError:  # it is still starting
            return f"{self.path}: another 'healthctl up' is starting there; wait for it, or use another --dir"
        todo = f"stop it with Ctrl-C there (process {found.pid}), or use another --dir"
        return f"{self.path}: already running at {found.url}, token in {found.token_file}; {todo}"

    def configure(self, node: str, ports: ServicePorts, *, accept_injected: bool) -> None:
        """Write the configuration of the programs, at each start."""
        url = f"127.0.0.1:{ports.remediator}"
        remediator = {
            "cluster": node,
            "listen": url,
            "database": self.database,
            "mode": "observe",
            "scheduler": {"kind": "local", "state_file": str(self.path / "holds.json")},
        }
        healthd = {
            "node": node,
            "state_dir": str(self.path / "healthd"),
            "run_dir": str(self.socket.parent),
            "beacon_dir": str(self.beacons),
            "listen": f"127.0.0.1:{ports.healthd}",
            "accept_injected": accept_injected,
            "remediator": {"url": f"http://{url}", "token_file": str(self.node_token_file), "report_interval_s": 2},
            "orders": {"allow": ORDERS},
        }
        _write_config(self.remediator_config, remediator)
        _write_config(self.healthd_config, healthd)


def _write_config(path: Path, config: dict[str, Any]) -> None:
    """Write JSON, which is valid YAML."""
    write_new(path, f"# Written by 'healthctl up' at each start.\n{json.dumps(config, indent=2)}\n")
