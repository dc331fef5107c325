"""What tests of several houses share: a real Slurm, and the rule that under CI nothing may be skipped."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthctl.demo.programs import Programs
from healthctl.demo.slurm_cluster import SlurmCluster, why_not


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
