"""What tests of several houses share: a real Slurm, a real PostgreSQL, and the rule that under CI nothing may be skipped."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings

from healthctl.demo.slurm_cluster import SlurmCluster, why_not
from healthctl.supervised.programs import Programs
from tests import postgresql

# These tests are not about a writer that stands still, and the machine may stand still for longer than one may.
_PATIENT = "-c idle_in_transaction_session_timeout=120s"


# How long an example takes says how busy the machine is.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell's background job ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests in one worker, for its fixtures' sake, and all that share one thing of the machine in one."""
    for item in items:
        shares = item.get_closest_marker("slurm") or item.get_closest_marker("kmsg")
        item.add_marker(pytest.mark.xdist_group("machine" if shares else item.nodeid.partition("::")[0]))


def skip_or_fail(why: str) -> None:
    """Skip the test; with CI=true fail it, so that no service can go missing unseen."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, and nothing may be skipped: {why}")
    pytest.skip(why)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A real Slurm of five pretend nodes, for the whole run. Tests leave its nodes as they found them."""
    if why := why_not():
        skip_or_fail(f"no Slurm here: {why}")
    with tempfile.TemporaryDirectory(prefix="gh-slurm-") as place, Programs(Path(place) / "log") as programs:
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
