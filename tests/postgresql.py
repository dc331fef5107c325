"""A private PostgreSQL for tests: the distribution's server, on a UNIX socket in a directory of its own, no TCP."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPTIONS = (
    "-c listen_addresses='' -c unix_socket_permissions=0777 -c max_connections=200 -c wal_retrieve_retry_interval=200ms"
)
_FAST = " -c shared_buffers=16MB -c autovacuum=off -c fsync=off"  # processes die here, power does not fail


def programs() -> Path | None:
    """Where the newest installed server's programs are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[4]))
    return found[-1].parent if found else None


def why_not() -> str:
    """Why there is no PostgreSQL here; empty if there is."""
    if programs() is None:
        return "no /usr/lib/postgresql/*/bin/pg_ctl"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "root may not run PostgreSQL, and there is no user postgres"
    return ""


class Cluster:
    """One server. Databases are cheap: each test takes one of its own."""

    def __init__(self, place: Path, *, durable: bool = False, standby_of: Cluster | None = None) -> None:
        """`standby_of`: a copy of that one, which serves, and follows it; until it is promoted it takes no write."""
        self.place = place
        self._options = _OPTIONS if durable else _OPTIONS + _FAST
        self._data = place / "data"
        self._numbers = itertools.count(1)
        place.mkdir(mode=0o755)
        self._as_owner: tuple[str, ...] = ()
        if os.geteuid() == 0:
            shutil.chown(place, "postgres", "postgres")
            self._as_owner = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--")
        if standby_of is None:
            self._run(
                "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8"
            )
        else:
            source = ("-h", str(standby_of.place), "-U", "postgres", "-D", str(self._data))
            self._run("pg_basebackup", *source, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def start(self) -> None:
        """Begin serving; returns when it does."""
        options = f"{self._options} -c unix_socket_directories='{self.place}'"
        log = str(self.place / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """End it; `immediate` is how a crash looks."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-m", mode, "stop")

    def promote(self) -> None:
        """From a standby to one that takes writes; returns when it does."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "promote")

    def wait_for_standby(self) -> None:
        """From now on acknowledge nothing that no standby has."""
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.sql("postgres", "SELECT pg_reload_conf()")

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.place}"

    def sql(self, database: str, statement: str) -> str:
        """Run one statement as the superuser; its rows, one a line."""
        return self._run("psql", "-h", str(self.place), "-U", "postgres", "-AtXq", "-c", statement, database)

    def _run(self, program: str, *arguments: str) -> str:
        found = programs()
        assert found is not None
        # pg_ctl's server inherits its output; a pipe would stay open as long as the server runs
        output = self.place.parent / f"{self.place.name}-{program}"
        with output.open("w") as out:
            done = subprocess.run(
                [*self._as_owner, str(found / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            )
        text = output.read_text()
        assert done.returncode == 0, text
        return text


@contextmanager
def running(place: Path, *, durable: bool = False) -> Iterator[Cluster]:
    """A cluster that serves while the block runs. `durable`: it also outlives a power cut, and is slower."""
    cluster = Cluster(place, durable=durable)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop("immediate")
