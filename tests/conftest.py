"""What tests of several houses share: a real Slurm, a real PostgreSQL, and the rule that under CI nothing may be skipped."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from healthctl.demo.slurm_cluster import SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from tests import postgresql

# These tests are not about a writer that stands still, and the machine may stand still for longer than one may.
_PATIENT = "-c idle_in_transaction_session_timeout=120s"


# How long an example takes says how busy the machine is.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell's background job ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _room(nodeid: str) -> str:
    """Where a test has to run: what shares one thing of the machine in one worker, else each file's tests in one."""
    path = nodeid.partition("::")[0]
    return "machine" if path in _sharing() else path


@cache
def _sharing() -> frozenset[str]:
    """Files with tests that need the one Slurm or the one kernel log of this machine."""
    here = Path(__file__).parent
    shares = re.compile(r"mark\.(slurm|kmsg)\b")
    return frozenset(
        str(path.relative_to(here.parent)) for path in here.rglob("test_*.py") if shares.search(path.read_text())
    )


class _Rooms(LoadScopeScheduling):
    """The longest first, so that no worker is left alone with it in the end: the machine's, end to end, the rest."""

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return _room(nodeid)


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """What a command that was called in this process makes of its signals ends with its test."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if handler is not None:  # else it is no handler of Python's
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Rooms:
    """xdist's own groups are lost in silence with some releases of pytest."""
    return _Rooms(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: the order in which rooms are given out."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (_room(item.nodeid) != "machine", not item.nodeid.startswith("tests/e2e/")))


def skip_or_fail(why: str) -> None:
    """Skip the test; with CI=true fail it, so that no service can go missing unseen."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, and nothing may be skipped: {why}")
    pytest.skip(why)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A real Slurm of five pretend nodes, for the whole run. Tests leave its nodes as they found them."""
    if why := explain_missing_slurm():
        skip_or_fail(f"no Slurm here: {why}")
    with tempfile.TemporaryDirectory(prefix="gh-slurm-") as place, SupervisedPrograms(Path(place) / "log") as programs:
        cluster = SlurmCluster(Path(place) / "slurm", programs)
        cluster.start()
        yield cluster


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.Cluster]:
    """A private PostgreSQL, for the whole run. Each test takes a database of its own from it."""
    if why := postgresql.why_not():
        skip_or_fail(f"no PostgreSQL here: {why}")
    with tempfile.TemporaryDirectory(prefix="gh-pg-") as place:
        Path(place).chmod(0o755)  # the server runs as a user of its own
        with postgresql.running(Path(place) / "pg") as cluster:
            yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new, empty database; the test runs on either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/r.db"
    cluster: postgresql.Cluster = request.getfixturevalue("postgresql_server")
    return f"{cluster.database()}&options={quote(_PATIENT)}"
