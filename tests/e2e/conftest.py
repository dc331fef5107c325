"""Fixtures of the end-to-end tests of a node."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from healthctl.demo.slurm_cluster import SlurmCluster

sys.path.insert(0, str(Path(__file__).parent))

from controller_process import Controller
from healthd_node import Node, fake_nvml
from slurm_batch import Batch
from trainer_job import References


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library: Path = fake_nvml().build(tmp_path_factory.mktemp("nvml"))
    return library


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    """Shared by the workers of a run, where there are several."""
    base = tmp_path_factory.getbasetemp()
    return References(base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """A controller that runs; a file may define another one."""
    controller = Controller(tmp_path)
    controller.start()
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


@pytest.fixture
def make_node(tmp_path: Path, nvml_library: Path) -> Iterator[Callable[..., Node]]:
    """Makes nodes, and ends whatever of them still runs."""
    nodes: list[Node] = []

    def make(**config: Any) -> Node:
        place = tmp_path / f"node{len(nodes)}"
        place.mkdir()
        nodes.append(Node(place, nvml_library, **config))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def submit(
    slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Batch]]:
    """Submits jobs to the tests' Slurm, and cancels whatever of them still runs."""
    monkeypatch.setenv("HEALTHD_BEACON_DIR", str(tmp_path / "beacons"))  # sbatch hands it on
    jobs: list[Batch] = []

    def make(nodes: int, options: str, rank_script: str, *, exec_launcher: bool = False) -> Batch:
        jobs.append(Batch(slurm_cluster, tmp_path, nodes, options, rank_script, exec_launcher=exec_launcher))
        return jobs[-1]

    yield make
    for job in jobs:
        slurm_cluster.command("scancel", "--full", job.id, check=False)
        job.until(
            lambda job=job: not slurm_cluster.command("squeue", "-h", "-j", job.id, check=False).strip(),
            "the job to end",
        )
