"""The gate on a real Slurm: its Prolog before a job, and a group of nodes tested by srun."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from healthd_node import Node, eventually

from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from tests.conftest import skip_or_fail

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[2]
PROLOG = ROOT / "deploy" / "slurm" / "prolog.sh"
BIN = Path(sys.executable).parent


class Gated:
    """A cluster of two nodes whose Prolog is the one we ship."""

    def __init__(self, place: Path, programs: SupervisedPrograms) -> None:
        self.log = place / "prolog.log"
        self._conf = place / "prolog.conf"
        wrapper = place / "prolog"
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"  # slurmd gives a prolog next to nothing
        wrapper.write_text(f"#!/bin/sh\ncd {ROOT}\nGPU_HEALTHD_PROLOG_CONF={self._conf} {path} exec {PROLOG}\n")
        wrapper.chmod(0o755)
        settings = {
            "Prolog": str(wrapper),
            "PrologFlags": "Alloc",
            "PrologEpilogTimeout": "300",
            "BatchStartTimeout": "300",
        }
        self.cluster = SlurmCluster(place / "slurm", programs, ClusterShape(nodes=("p1", "p2"), settings=settings))
        self.configure("")
        self.cluster.start()

    def configure(self, preflight: str, socket: Path = Path("/nowhere")) -> None:
        """What the prolog does from now on."""
        self.log.unlink(missing_ok=True)
        text = f'BIN={BIN}\nSOCKET={socket}\nPREFLIGHT="{preflight}"\nSECONDS_MAX=120\nLOG={self.log}\n'
        self._conf.write_text(text)

    def submit(self, place: Path, node: str) -> str:
        """A job that leaves a file, if it ever begins; its number."""
        script = place / "job.sh"
        script.write_text(f"#!/bin/sh\ntouch {place}/ran\n")
        argv = ("sbatch", "--parsable", f"--nodelist={node}", f"--output={place}/log", str(script))
        return self.cluster.command(*argv).strip()

    def said(self) -> str:
        """The prolog's log."""
        return self.log.read_text() if self.log.exists() else ""

    def drained(self, node: str) -> str:
        """Why Slurm drained the node; empty where it did not."""
        text = self.cluster.command("sinfo", "-h", "-N", "-n", node, "-o", "%T|%E")
        state, _, reason = text.strip().partition("|")
        return reason if state.startswith("drain") else ""

    def forget(self, job: str, node: str) -> None:
        """Leave no job and no drain."""
        self.cluster.command("scancel", job, check=False)
        if self.drained(node):
            self.cluster.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
        eventually(lambda: self.cluster.node_states().get(node) == "idle", f"{node} to be idle")


@pytest.fixture(scope="module")
def gated() -> Iterator[Gated]:
    if why := explain_missing_slurm():
        skip_or_fail(f"no Slurm here: {why}")
    with tempfile.TemporaryDirectory(prefix="gh-gate-") as name, SupervisedPrograms(Path(name) / "log") as programs:
        Path(name).chmod(0o755)
        yield Gated(Path(name), programs)


@pytest.mark.parametrize(
    ("preflight", "says"),
    [
        ("--level gate --only software", ""),
        ("--level gate --only gpu_state", "begins without a verdict: no test applied to this machine"),
        ("--level gate --only no_such_test", "begins untested"),
    ],
    ids=["pass", "inconclusive", "misconfigured"],
)
def test_a_job_begins_unless_its_node_is_proved_bad(gated: Gated, tmp_path: Path, preflight: str, says: str) -> None:
    gated.configure(preflight)
    job = gated.submit(tmp_path, "p1")
    eventually((tmp_path / "ran").exists, lambda: f"the job to begin; {gated.said()}")
    assert "healthd says nothing of it: " in gated.said()  # none runs here
    assert says in gated.said() if says else "begins" not in gated.said()
    assert gated.drained("p1") == ""
    gated.forget(job, "p1")


def test_a_failure_keeps_the_job_off_and_is_told_to_healthd(
    gated: Gated, tmp_path: Path, make_node: Callable[..., Node]
) -> None:
    kernel_log = tmp_path / "kernel.log"
    kernel_log.touch()
    healthd = make_node(kernel_log=kernel_log)
    healthd.start()
    gated.configure("--level gate --only gpu_state --inject gpu_state:lost", healthd.socket)
    job = gated.submit(tmp_path, "p2")
    eventually(lambda: gated.drained("p2"), lambda: f"Slurm to drain the node; {gated.said()}")
    assert gated.drained("p2") == "Prolog error"  # Slurm's own words: the remediator may take the node over
    assert "refused, its preflight failed: gpu_state" in gated.said()
    finding = healthd.findings()["preflight/failed"]
    assert finding["injected"] is True
    gated.forget(job, "p2")

    gated.configure("", healthd.socket)  # the next job: healthd alone is asked, and remembers
    job = gated.submit(tmp_path, "p2")
    eventually(lambda: gated.drained("p2"), lambda: f"Slurm to drain the node; {gated.said()}")
    assert "refused, healthd calls it unfit" in gated.said()
    assert not (tmp_path / "ran").exists()
    gated.forget(job, "p2")


def grouped(cluster: SlurmCluster, place: Path, *faults: str) -> tuple[int, dict[str, Any], list[str]]:
    """Test four nodes of an allocation; the exit code of srun, the document, and the nodes by rank."""
    injected = " ".join(f"--inject {shlex.quote(fault)}" for fault in faults)
    srun = "srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60"
    command = f"{srun} {sys.executable} -m preflight group --no-own-test -o json {injected}"
    script = place / "gate.sh"
    script.write_text(
        f"#!/bin/sh\ncd {ROOT}\nexport MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1\n"  # its nodes are no names of DNS
        f"{command} >{place}/document 2>{place}/words\necho $? >{place}/code.new\nmv {place}/code.new {place}/code\n"
    )
    nodes = "node1,node2,node3,node4"
    job = cluster.command("sbatch", "--parsable", f"--nodelist={nodes}", f"--output={place}/log", str(script)).strip()

    def log() -> str:
        return "\n".join(path.read_text() for path in place.iterdir() if path.is_file())

    eventually((place / "code").exists, lambda: f"the group to end; {log()}", within_s=100)
    eventually(lambda: not cluster.command("squeue", "-h", "-j", job, check=False).strip(), "the job to be gone")
    document = json.loads((place / "document").read_text())
    return int((place / "code").read_text()), document, [node["node"] for node in document["nodes"]]


def test_srun_tests_a_group_and_names_the_node(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    code, document, nodes = grouped(slurm_cluster, tmp_path, "slow:node3=0.7")
    assert nodes == ["node1", "node2", "node3", "node4"]
    assert (document["launcher"], document["verdict"], document["exclude"]) == ("slurm", "fail", ["node3"])
    assert code == 1


def test_srun_tests_a_group_and_names_the_link(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    code, document, _ = grouped(slurm_cluster, tmp_path, "link:node2,node4=0.5")
    assert [(one["kind"], one["where"]) for one in document["culprits"]] == [("link", ["node2", "node4"])]
    assert code == 1
