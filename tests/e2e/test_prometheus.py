"""A real Prometheus scrapes real agents and a real controller in the middle of trouble, and is asked everything that dashboards and rules ask."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_process import Controller
from healthd_node import Node, eventually
from prometheus_stack import ROOT, Alertmanager, Prometheus, Receiver, free_port
from simulated_job import Job

from healthd.source_monitoring.source_registry import SOURCES
from tests.nodes.machines import dgx
from vocabulary.driver_log.xid_line import format_xid

CLUSTER = "test"
WITHIN_S = 200  # about half a minute; the machine may be busy
# What variables of dashboards stand for.
CHOSEN = {"$cluster": CLUSTER, "$node": ".*", "$gpu": ".*", "$job": ".*", "$level": ".*", "$price": "2"}

NOBODY = "http://127.0.0.1:9/"  # is told of incidents and does not hear
FIGURE = {"name": "gemm", "value": 612.5, "unit": "TFLOP/s", "setting": "bf16 8192"}
VERDICT = {"verdict": "pass", "complete": True, "results": [{"figures": [FIGURE]}]}
PREFLIGHT = f"import json; print(json.dumps({VERDICT!r}))"
SITE = """
playbook: 1
include: [shipped/default.yaml]
rules:
  - name: a-row-to-replace
    why: one that comes back at once
    match: {findings: [row_remap/pending]}
    steps: [cordon, {preflight: gate}, return_to_service]
"""


class Cluster:
    """Four nodes, a controller, Prometheus, Alertmanager and who is told. Each test has trouble on a node of its own."""

    def __init__(self, place: Path, library: Path) -> None:
        self.place = place
        self.closing: list[Callable[[], object]] = []
        (place / "controller").mkdir()
        (place / "site.yaml").write_text(SITE)
        self.controller = Controller(place / "controller")
        with self.controller.config.open("a") as config:
            config.write(
                "budget: {isolated_max: 3, isolated_fraction_per_hour_max: 1.0, isolation_gap_s: 0}\n"
                f"playbooks: [{place}/site.yaml]\nalerts: {{webhooks: [{NOBODY}]}}\n"
            )
        self.controller.start()
        self.closing.append(lambda: self.controller.end(signal.SIGKILL))
        machine = dgx.build(place / "machine", {"/proc/sys/kernel/random/boot_id": "b"})
        self.ports: dict[str, int] = {}
        with ThreadPoolExecutor() as pool:
            self.nodes = list(pool.map(lambda number: self._node(number, library, machine), range(4)))
        self.told = Receiver()
        self.closing.append(self.told.close)
        self.alertmanager = Alertmanager(place / "alertmanager", self.told.url)
        self.closing.append(self.alertmanager.close)
        self.alertmanager.start()
        self.prometheus = Prometheus(place / "prometheus", self._scrapes(), self.alertmanager)
        self.closing.append(self.prometheus.close)
        self.prometheus.start()
        self.job = Job(self.nodes[:2])
        self.closing.append(self.job.close)
        self.job.start()

    def close(self) -> None:
        for end in reversed(self.closing):
            end()

    def _node(self, number: int, library: Path, machine: Path) -> Node:
        place = self.place / f"node{number}"
        place.mkdir()
        port, log = free_port(), place / "kern.log"
        log.touch()
        node = Node(
            place,
            library,
            kernel_log=log,
            listen=f"127.0.0.1:{port}",
            remediator={
                "url": self.controller.url,
                "token_file": str(place / "token"),
                "report_interval_s": 0.5,
            },
            thresholds={"training": {"report_window_s": 0.3}},
            sources={source.name: {"every_s": 5} for source in SOURCES},
            orders={"preflight_command": [sys.executable, "-c", PREFLIGHT, "{level}"]},
        )
        (place / "token").write_text(self.controller.issue("--node", node.name))
        node.command = [
            sys.executable,
            str(Path(__file__).with_name("healthd_on_machine.py")),
            str(node.config),
            str(machine),
        ]
        node.gpus(*node.preset("h100x8"), f"process.0 {os.getpid()} 1048576")
        node.start()
        self.closing.append(node.close)
        self.ports[node.name] = port
        return node

    def _scrapes(self) -> list[dict[str, Any]]:
        agents = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": CLUSTER, "node": node, "rack": "r1"}}
            for node, port in self.ports.items()
        ]
        controller = {"targets": [f"127.0.0.1:{self.controller.port}"], "labels": {"cluster": CLUSTER}}
        return [
            {"job_name": "healthd", "static_configs": agents},
            {"job_name": "remediator", "static_configs": [controller]},
        ]

    def undone(self) -> str:
        """What the controller says of all this, while it has nothing tested."""
        asked = ("/v1/incidents", "/v1/actions", "/v1/nodes", "/v1/status")
        said = {path: self.controller.call("GET", path, "ann").json() for path in asked}
        return f"the controller has nothing tested; it says {json.dumps(said, indent=1)}"

    def make_trouble(self) -> None:
        """What people look at dashboards for: Xids of the driver's own, a row to replace, a preflight, and the job's slow rank."""
        ill = self.nodes[2]
        ill.gpus(*ill.preset("h100x8"), "pending.3 1")
        for node in self.nodes[:2]:
            node.kernel_says(format_xid(31, "0000:10:00", pid=1, process="python3", detail="MMU fault"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nvml_library: Path) -> Iterator[Cluster]:
    made = Cluster.__new__(Cluster)
    made.closing = []
    try:
        made.__init__(tmp_path_factory.mktemp("c"), nvml_library)  # type: ignore[misc] # what was begun ends, also when the rest fails
        yield made
    finally:
        made.close()


def questions() -> dict[str, str]:
    """Every question of every dashboard and of the recording rules, with the variables filled in: where it stands → PromQL."""
    asked: dict[str, str] = {}
    for path in sorted((ROOT / "dashboards/grafana").glob("*.json")):
        document = json.loads(path.read_text())
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                asked[f"{path.stem}: {panel['title']} {target['refId']}"] = target["expr"]
        for annotation in document["annotations"]["list"]:
            asked[f"{path.stem}: mark {annotation['name']}"] = annotation["expr"]
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                assert inner is not None, variable["query"]
                asked[f"{path.stem}: variable {variable['name']}"] = f"count by ({inner[2]}) ({inner[1]}) != 0"
    for group in yaml.safe_load((ROOT / "dashboards/prometheus/recording.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            asked[f"recorded: {rule['record']}"] = rule["record"]
    for name, value in CHOSEN.items():
        asked = {where: question.replace(name, value) for where, question in asked.items()}
    assert not [question for question in asked.values() if "$" in question]
    return asked


@pytest.mark.timeout(3 * WITHIN_S)
def test_every_question_has_an_answer_while_there_is_trouble(cluster: Cluster) -> None:
    prometheus, ill = cluster.prometheus, cluster.nodes[2]
    eventually(
        lambda: len(prometheus.ask("count by (node) (healthd_gpu_info)")) == len(cluster.nodes), "all are scraped"
    )
    cluster.make_trouble()
    eventually(lambda: prometheus.ask("healthd_preflight_timestamp_seconds"), cluster.undone, WITHIN_S)
    ill.gpus(*ill.preset("h100x8"))
    unanswered = questions()
    patience = threading.Event()

    def all_answered() -> bool:
        for where, question in list(unanswered.items()):
            if prometheus.ask(question):
                del unanswered[where]
        return not unanswered or patience.wait(0.5)  # as often as there can be news

    eventually(
        all_answered,
        lambda: "\n".join(f"{where}: {question}" for where, question in unanswered.items()),
        WITHIN_S,
    )


@pytest.mark.timeout(3 * WITHIN_S)
def test_an_alert_reaches_who_is_to_be_told_and_says_when_it_is_over(cluster: Cluster) -> None:
    ill, told = cluster.nodes[3], cluster.told
    ill.gpus(*ill.preset("h100x8"), "lost 3")
    found = eventually(lambda: told.told("/day", "GpuLost"), lambda: str(told.heard), WITHIN_S)
    assert (found["labels"]["node"], found["labels"]["gpu"], found["labels"]["rack"]) == (ill.name, "3", "r1")
    assert found["annotations"]["summary"] == f"the driver of {ill.name} can no longer reach GPU 3"
    cluster.controller.end(signal.SIGKILL)
    eventually(lambda: told.told("/pager", "LeaderMissing"), lambda: str(told.heard), WITHIN_S)
    assert not told.told("/day", "LeaderMissing")
    cluster.controller.start()
    eventually(lambda: told.told("/pager", "LeaderMissing", "resolved"), lambda: str(told.heard), WITHIN_S)


@pytest.mark.timeout(2 * WITHIN_S)
def test_no_rule_fails(cluster: Cluster) -> None:
    def health() -> set[str]:
        groups = cluster.prometheus.get("/api/v1/rules")["data"]["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    eventually(lambda: "unknown" not in health(), "each rule was asked once", WITHIN_S)
    assert health() == {"ok"}
