"""The hazard of a job, from the controller's records through the node's daemon to a rank's plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from controller_process import Controller
from healthd_node import Node, eventually
from stub_controller import StubController

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.interval import CheckpointInterval
from vocabulary.health import Health
from vocabulary.messages.wire import RankStatus, Report, encode_message


@pytest.fixture
def tiny() -> Iterator[StubController]:
    controller = StubController()
    yield controller
    controller.close()


def test_operators_and_the_jobs_own_nodes_may_ask_for_its_hazard(controller: Controller) -> None:
    now = time.time()
    report = Report(
        version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=now, ttl_s=30, health=Health.HEALTHY,
        ranks=(RankStatus("team/train", 0, 0, 1, 1, 5, "step", now),),
    )  # fmt: skip
    assert controller.call("POST", "/v1/nodes/n1/report", "n1", data=encode_message(report)).status_code == 200
    found = eventually(
        lambda: (answer := controller.call("GET", "/v1/hazard/team%2Ftrain", "n1")).ok and answer.json(), "a hazard"
    )
    assert (found["job"], found["nodes"]) == ("team/train", 1)
    assert 1 / found["per_s"] == pytest.approx(6500 * 3600)
    assert controller.call("GET", "/v1/hazard/team%2Ftrain", "ann").json()["per_s"] == found["per_s"]
    assert controller.call("GET", "/v1/hazard/team%2Ftrain", "n2").status_code == 403
    assert controller.call("GET", "/v1/hazard/team%2Ftrain", "nobody").status_code == 401
    assert controller.call("GET", "/v1/hazard/other", "ann").status_code == 404


def test_a_rank_hears_it_through_its_node(make_node: Callable[..., Node], tiny: StubController, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=tiny.configuration(tmp_path))
    node.start()
    eventually(node.beacons.is_dir, "the beacon directory")
    beacon = Beacon.create(str(node.beacons), RankPlacement("train", 0, 0, 1, 0, node.name))
    environ = {"HEALTHD_JOB": "train", "HEALTHD_BEACON_DIR": str(node.beacons)}
    interval = CheckpointInterval.from_env(environ=environ, nodes=2, node_mtbf_s=1e9)
    assert interval.mtbf_s == pytest.approx(5e8)
    eventually(lambda: interval.mtbf_s == pytest.approx(1e4), "the controller's hazard")
    written = next(node.beacons.glob("train.*.hazard")).stat()
    assert (written.st_uid, written.st_mode & 0o777) == (os.geteuid(), 0o644)
    beacon.close()
