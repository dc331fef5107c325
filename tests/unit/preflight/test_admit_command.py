"""A node that has passed loses its startup taint; nothing else does, and nothing else is changed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from preflight.commands import admit_command as command
from preflight.integrations import kubernetes_taint
from preflight.integrations.kubernetes_taint import (
    KEY,
    ClusterApi,
    TaintError,
    has_taint,
    read_cluster_api,
    remove_taint,
)
from tests.nodes.fake_kubernetes.admission import user_of
from tests.nodes.fake_kubernetes.cluster import enforce
from tests.nodes.fake_kubernetes.schema import problems
from tests.nodes.fake_kubernetes.server import Server

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "deploy" / "kubernetes" / "startup-taint.yaml"
DOCUMENTS = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}
OTHER = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
PASS = json.loads((ROOT / "tests/golden/preflight/pass.json").read_text())


@dataclasses.dataclass
class Land:
    server: Server
    api: ClusterApi

    def node(self, *taints: dict[str, Any]) -> None:
        spec = {"taints": [*taints]} if taints else {}
        self.server.store.create("nodes", {"metadata": {"name": "gpu-1"}, "spec": spec, "status": {}})

    def taints(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.store.get("nodes", "", "gpu-1")["spec"].get("taints", [])
        return found


@pytest.fixture
def land() -> Iterator[Land]:
    with Server({"pod": DOCUMENTS["ClusterRole"]["rules"], "reader": [_reads()]}) as server:
        enforce(server)
        server.users["pod"] = user_of("healthd", "gpu-1")
        yield Land(server, ClusterApi(server.url, "pod", ""))


def _reads() -> dict[str, Any]:
    return {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}


UNTESTED = {"key": KEY, "effect": "NoSchedule"}


def test_only_our_taint_goes(land: Land) -> None:
    land.node(OTHER, UNTESTED)
    assert has_taint(land.api, "gpu-1", 10)
    assert remove_taint(land.api, "gpu-1", 10)
    assert land.taints() == [OTHER]
    assert not has_taint(land.api, "gpu-1", 10)


def test_a_node_without_it_is_not_written_to(land: Land) -> None:
    land.node(OTHER)
    assert not remove_taint(land.api, "gpu-1", 10)
    assert {asked.verb for _, asked in land.server.asked} == {"get"}


def test_somebody_else_may_be_quicker(land: Land) -> None:
    land.node(UNTESTED)

    def somebody() -> None:
        change = {"spec": {"taints": [UNTESTED, OTHER]}}
        land.server.store.change("nodes", "", "gpu-1", change, "merge", "kubectl", "")

    land.server.before_write.append(somebody)
    assert remove_taint(land.api, "gpu-1", 10)
    assert land.taints() == [OTHER]


def test_a_busy_server_is_asked_again(land: Land) -> None:
    land.node(UNTESTED)
    land.server.busy = 2
    assert remove_taint(land.api, "gpu-1", 10)


@pytest.mark.parametrize(
    ("token", "why"), [("reader", "not allowed to change the node: 403"), ("thief", "cannot read the node: 401")]
)
def test_a_refusal_is_told_at_once(land: Land, token: str, why: str) -> None:
    land.node(UNTESTED)
    with pytest.raises(TaintError, match=why):
        remove_taint(land.api._replace(token=token), "gpu-1", 600)
    assert land.taints() == [UNTESTED]


def test_a_server_that_is_away_is_named_in_the_end(land: Land) -> None:
    land.server.dark.set()
    with pytest.raises(TaintError, match="not removed within 1 s; last error: no answer"):
        remove_taint(land.api, "gpu-1", 1)


def test_outside_a_pod_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TaintError, match="not a Kubernetes pod"):
        read_cluster_api({})
    with pytest.raises(TaintError, match="serviceAccountName"):
        read_cluster_api({"KUBERNETES_SERVICE_HOST": "::1"}, tmp_path)
    (tmp_path / "token").write_text("t\n")
    api = read_cluster_api({"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert api == ClusterApi("https://[::1]:6443", "t", str(tmp_path / "ca.crt"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"node": "gpu-2"}, "the document is for node gpu-2"),
        ({"verdict": "fail", "reason": "bit 3"}, "the verdict is fail: bit 3"),
        ({"verdict": "inconclusive"}, "the verdict is inconclusive"),
        ({"injected": ["software:ecc_off"]}, "the pass does not count"),
        ({"complete": False}, "the pass does not count"),
        ({"started_at": 1.0}, "the pass is older than one hour"),
        ({"started_at": 4e9}, "the pass is older than one hour"),
    ],
)
def test_only_a_whole_fresh_pass_of_this_node_admits(
    land: Land, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], why: str
) -> None:
    land.node(OTHER, UNTESTED)
    monkeypatch.setenv("HEALTHD_NODE", "gpu-1")
    monkeypatch.setattr(command, "read_cluster_api", lambda _: land.api)
    whole = {"node": "gpu-1", "complete": True, "injected": [], "started_at": time.time() - 60, "seconds": 9.0}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(PASS | whole | changes))
    done = CliRunner().invoke(command.admit, [str(file)])
    assert done.exit_code == (3 if why else 0), done.output
    assert why in done.output
    assert land.taints() == ([OTHER, UNTESTED] if why else [OTHER])


@pytest.mark.parametrize(("taints", "code"), [((UNTESTED,), 3), ((OTHER,), 0)])
def test_without_a_document_it_only_looks(
    land: Land, monkeypatch: pytest.MonkeyPatch, taints: tuple[dict[str, Any], ...], code: int
) -> None:
    land.node(*taints)
    monkeypatch.setenv("HEALTHD_NODE", "gpu-1")
    monkeypatch.setattr(command, "read_cluster_api", lambda _: land.api)
    assert CliRunner().invoke(command.admit, []).exit_code == code
    assert land.taints() == [*taints]


def test_the_manifest_has_the_published_shape() -> None:
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        assert list(problems(document, f"V1{document['kind']}")) == [], document["kind"]


def test_the_test_tolerates_the_very_taint_and_its_account_is_the_one_the_policy_watches() -> None:
    pod = DOCUMENTS["DaemonSet"]["spec"]["template"]["spec"]
    assert [toleration["key"] for toleration in pod["tolerations"]] == [kubernetes_taint.KEY]
    policies = (ROOT / "deploy/kubernetes/admission.yaml").read_text()
    assert f"serviceaccount:{pod_namespace()}:{pod['serviceAccountName']}'" in policies
    assert kubernetes_taint.KEY in policies


def pod_namespace() -> str:
    return str(DOCUMENTS["DaemonSet"]["metadata"]["namespace"])
