"""The manifests: of the published shape, allowing exactly what is used, and speaking of the names that we write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.scheduler_hold import REASON_PREFIX, THEIR_PREFIX, ActionResult
from remediator.schedulers.kubernetes import object_names
from tests.nodes.fake_kubernetes.cluster import ROLE, documents, our_rules, running
from tests.nodes.fake_kubernetes.rights import granted
from tests.nodes.fake_kubernetes.schema import problems

ADMISSION = ROLE.with_name("admission.yaml")
OURS = "gpu-healthd: inc-1 XID 79"


@pytest.mark.parametrize(
    "document",
    [*documents(), *documents(ADMISSION)],
    ids=lambda document: f"{document['kind']}-{document['metadata']['name']}",
)
def test_every_manifest_has_the_published_shape(document: dict[str, Any]) -> None:
    assert list(problems(document, f"V1{document['kind']}")) == []


def test_the_role_allows_exactly_what_is_used(tmp_path: Path) -> None:
    """The fake server refuses what the role does not allow, in every test; here nothing that it allows goes unused."""
    with running(tmp_path) as cluster:
        jobset = cluster.made("jobsets", "s")
        cluster.pod("node1", maker=cluster.made("jobs", "s-node-0", jobset))
        ours = cluster.scheduler()
        wait_until_ready(lambda: ours.observe(["node1"])["node1"].jobs == ("JobSet/research/s",), 90, "the job")
        outcomes = [ours.cordon("node1", OURS), ours.evict("node1"), ours.resume("node1")]
        assert {outcome.result for outcome in outcomes} == {ActionResult.DONE}

        def used() -> set[Any]:
            return {asked for token, asked in cluster.server.asked if token == "centre"}

        wait_until_ready(lambda: used() >= granted(our_rules()), 90, "every right to be used")
        assert used() == granted(our_rules())


def test_the_role_is_given_to_the_account_that_the_policy_watches() -> None:
    binding = next(document for document in documents() if document["kind"] == "ClusterRoleBinding")
    role, account = (
        next(document for document in documents() if document["kind"] == kind)
        for kind in ("ClusterRole", "ServiceAccount")
    )
    meta = account["metadata"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": meta["name"], "namespace": meta["namespace"]}]
    text = ADMISSION.read_text()
    assert f"system:serviceaccount:{meta['namespace']}:{meta['name']}'" in text
    marks = (
        object_names.TAINT,
        object_names.HANDS_OFF,
        object_names.OWNER,
        object_names.REASON,
        object_names.SINCE,
        object_names.NODE_UID,
        object_names.CONDITION,
    )
    for name in (*marks, REASON_PREFIX, THEIR_PREFIX):
        assert f"'{name}'" in text


def test_every_policy_is_in_force_and_fails_closed() -> None:
    policies = {d["metadata"]["name"]: d["spec"] for d in documents(ADMISSION) if d["kind"].endswith("Policy")}
    bindings = {d["spec"]["policyName"]: d["spec"] for d in documents(ADMISSION) if d["kind"].endswith("Binding")}
    assert policies.keys() == bindings.keys()
    assert {spec["failurePolicy"] for spec in policies.values()} == {"Fail"}
    assert all(spec["validationActions"] == ["Deny"] for spec in bindings.values())


def test_no_other_backend_needs_the_client_library() -> None:
    code = "import sys, remediator.serving.leader_term, remediator.config; print('kubernetes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
