"""The health check that we ship, as a real Slurm's HealthCheckProgram and Epilog."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from healthd_node import eventually

from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from tests.conftest import skip_or_fail

pytestmark = pytest.mark.slurm
SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "health_check.sh"
FIT = "OK - it is healthy | age=0.1s"
UNFIT = "CRITICAL - it is unhealthy: Xid 79 'GPU' \"off\" | age=0.1s"
UNKNOWN = "UNKNOWN - no healthd answers"
ENDS = {"O": 0, "C": 2, "U": 3}


class Checked:
    """A cluster of three nodes of which each has a verdict in a file, where the health check asks."""

    def __init__(self, place: Path, programs: SupervisedPrograms) -> None:
        self._place = place
        self.log = place / "log-of-checks"
        asks = '"$SLURMD_NODENAME${SLURM_JOB_ID:+-epilog}"'
        self._program("healthctl", f'read -r code line <{place}/verdict-{asks}; echo "$line"; exit "$code"')
        (place / "conf").write_text(f"BIN={place}\nLOG={self.log}\n")
        environ = f"GPU_HEALTHD_PROLOG_CONF={place}/conf SLURM_CONF={place}/slurm/slurm.conf PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        begun, ended = (f'echo "{word} $SLURMD_NODENAME" >>{place}/ran' for word in ("begun", "ended"))
        self._program("check", f"{begun}; {environ} {SCRIPT}; code=$?; {ended}; exit $code")
        for node in ("h1", "h2", "h3", "h3-epilog"):
            self.verdict(node, FIT)
        settings = {
            "HealthCheckProgram": f"{place}/check",
            "HealthCheckInterval": "1",  # so often that Slurm never gets to asking whether a resumed node is there
            "HealthCheckNodeState": "ANY",
            "Epilog": f"{place}/check",
        }
        self.cluster = SlurmCluster(
            place / "slurm", programs, ClusterShape(nodes=("h1", "h2", "h3"), settings=settings)
        )
        self.cluster.start()

    def _program(self, name: str, script: str) -> None:
        (self._place / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._place / name).chmod(0o755)

    def verdict(self, node: str, line: str) -> None:
        """What healthd says of the node from now on."""
        aside = self._place / "aside"
        aside.write_text(f"{ENDS[line[0]]} {line}\n")
        aside.replace(self._place / f"verdict-{node}")

    def ran(self, node: str, word: str) -> int:
        """How many looks at the node have begun, or ended, so far."""
        file = self._place / "ran"
        return file.read_text().splitlines().count(f"{word} {node}") if file.exists() else 0

    def looked(self, node: str) -> None:
        """Wait until the node was looked at with the verdict it has now, and no older look is under way."""
        begun = self.ran(node, "begun")
        eventually(lambda: self.ran(node, "ended") > begun, f"a look at {node}")

    def drained(self, node: str) -> str:
        """Why Slurm drained the node; empty where it did not."""
        state, _, reason = self.cluster.command("sinfo", "-h", "-N", "-n", node, "-o", "%T|%E").strip().partition("|")
        return reason if state.startswith("drain") else ""

    def jobs(self) -> str:
        """Numbers of jobs that Slurm still has to do with."""
        return " ".join(self.cluster.command("squeue", "-h", "-o", "%i", check=False).split())


@pytest.fixture(scope="module")
def checked() -> Iterator[Checked]:
    if why := explain_missing_slurm():
        skip_or_fail(f"no Slurm here: {why}")
    with tempfile.TemporaryDirectory(prefix="gh-check-") as name, SupervisedPrograms(Path(name) / "log") as programs:
        Path(name).chmod(0o755)
        yield Checked(Path(name), programs)


def test_only_the_unfit_node_is_drained_and_a_person_s_drain_keeps_its_reason(checked: Checked) -> None:
    checked.cluster.command("scontrol", "update", "NodeName=h2", "State=DRAIN", "Reason=ask Kim")
    checked.verdict("h2", UNFIT)
    checked.verdict("h1", UNKNOWN)
    for node in ("h1", "h2"):
        checked.looked(node)
    assert (checked.drained("h1"), checked.drained("h2")) == ("", "ask Kim")

    checked.verdict("h1", UNFIT)
    eventually(lambda: checked.drained("h1"), "Slurm to drain the node")
    assert checked.drained("h1") == "healthd: it is unhealthy: Xid 79 GPU off"
    assert "drained: it is unhealthy" in checked.log.read_text()


def test_an_epilog_drains_the_node_that_its_job_left_unfit(checked: Checked, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n")

    def run() -> str:
        job = checked.cluster.command("sbatch", "--parsable", "-w", "h3", "--output=/dev/null", str(script)).strip()
        eventually(lambda: f" {job} " not in f" {checked.jobs()} ", "the job and its epilog to end")
        return job

    run()
    assert checked.drained("h3") == ""
    checked.verdict("h3-epilog", UNFIT)
    job = run()
    eventually(lambda: checked.drained("h3"), "Slurm to drain the node")
    assert checked.drained("h3") == "Epilog error"  # Slurm's own words
    assert f"node h3: unfit after job {job}: it is unhealthy" in checked.log.read_text()
