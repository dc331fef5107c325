"""The Helm chart, rendered by Helm itself: the plain manifests are its output, and what it is given wrong it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from healthd.config import parse_node_config
from remediator.config import Config, load_config
from remediator.playbook.playbook_loader import load_policy
from tests.conftest import skip_or_fail
from tests.nodes.fake_kubernetes.schema import problems
from tests.unit.deploy.chart import CHART, DEPLOY, documents, rendered
from vocabulary import VERSION

PLAIN = DEPLOY / "kubernetes"
PLAIN_VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "helm" / "plain.yaml").read_text())
OPERATOR = "monitoring.coreos.com/v1"  # Kubernetes publishes no schema of these kinds
HEAD = "# Made of deploy/helm by `make golden`: change it there.\n"
PLAYBOOK = (DEPLOY.parent / "playbooks" / "alternatives" / "restart-first.yaml").read_text()
EVERYTHING: dict[str, Any] = {
    "images": {
        "node": {"repository": "r.example/node", "digest": f"sha256:{'a' * 64}"},
        "centre": {"repository": "r.example/centre", "tag": "7"},
        "pullSecrets": ["puller", "other"],
    },
    "gpuNodes": [{"label": "gpu", "value": "yes"}, {"label": "pool", "value": "h100"}],
    "healthd": {"config": {"remediator": {"report_interval_s": 5}}, "runtimeClassName": ""},
    "startupTest": {"enabled": True},
    "remediator": {
        "mode": "act",
        "config": {"scheduler": {"kubernetes": {"evict_after_s": 600}}, "budget": {"isolated_max": 4}},
        "rights": {"evict": True},
        "secrets": ["receivers"],
        "playbooks": {"20-b.yaml": PLAYBOOK, "10-a.yaml": "playbook: 1\ninclude: [shipped/default.yaml]\n"},
        "topology": "nodes:\n  n1: {rack: r1}\n",
        "service": {"type": "LoadBalancer", "annotations": {"x": "y"}},
        "ingress": {"enabled": True, "host": "gpu-health.example.org", "tlsSecret": "web"},
        "disruptionBudget": {"enabled": True},
    },
    "networkPolicy": {
        "centreFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "egress": {"enabled": True, "centreTo": [{"ports": [{"protocol": "TCP", "port": 6443}]}]},
    },
    "monitoring": {part: {"enabled": True} for part in ("rules", "scrape", "dashboards")},
}
NOTHING: dict[str, Any] = {part: {"enabled": False} for part in ("healthd", "remediator", "admission", "networkPolicy")}


def test_helm_finds_nothing_to_complain_about() -> None:
    if importlib.util.find_spec("helm_python") is None:
        skip_or_fail("no Helm library for this platform")
    import helm_python  # noqa: PLC0415 - as above

    said = helm_python.lint(str(CHART))
    complaints = [message for message in said["messages"] if "icon is recommended" not in str(message)]
    assert (said["total_charts_linted"], complaints, said["errors"]) == (1, [], [])


def test_the_plain_manifests_are_what_the_chart_makes() -> None:
    made = {file: HEAD + text for file, text in rendered(PLAIN_VALUES).items() if file.endswith(".yaml")}
    if os.environ.get("GOLDEN") == "update":
        for file, text in made.items():
            (PLAIN / file).write_text(text)
    assert {file: (PLAIN / file).read_text() for file in made if (PLAIN / file).exists()} == made, "make golden"
    by_hand = {"namespace.yaml", "training-job.yaml", "training-jobset.yaml", "gated-job.yaml"}
    assert {file.name for file in PLAIN.glob("*.yaml")} == set(made) | by_hand


@pytest.mark.parametrize("values", [{}, PLAIN_VALUES, EVERYTHING, NOTHING], ids=["default", "plain", "all", "none"])
def test_every_object_has_the_published_shape(values: dict[str, Any]) -> None:
    found = documents(values, "elsewhere")
    assert bool(found) is (values is not NOTHING)
    for (kind, name), document in found.items():
        if document["apiVersion"] != OPERATOR:
            assert list(problems(document, f"V1{kind}")) == [], (kind, name)
        assert kind != "Secret"
        assert not re.search(r"gpu-health[/:]", json.dumps(document)), "a namespace that is not this release's"
    accounts = Counter(each["metadata"].get("namespace", "elsewhere") for each in found.values())
    assert set(accounts) <= {"elsewhere"}


def test_a_budget_has_the_published_shape_and_keeps_only_the_one_that_leads() -> None:
    budget = documents(EVERYTHING)["PodDisruptionBudget", "remediator"]["spec"]
    assert (budget["minAvailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert ("PodDisruptionBudget", "remediator") not in documents({})


def test_without_being_asked_nobody_may_evict_pods_or_touch_nodes_beside_the_centre() -> None:
    found = documents({})
    (role,) = [each for (kind, _), each in found.items() if kind == "ClusterRole"]
    assert "pods/eviction" not in {resource for rule in role["rules"] for resource in rule["resources"]}
    (binding,) = [each for (kind, _), each in found.items() if kind.endswith("RoleBinding")]
    assert [subject["name"] for subject in binding["subjects"]] == ["remediator"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"list", "watch", "patch", "get"}


def test_what_a_site_says_reaches_both_configurations(tmp_path: Path) -> None:
    found = documents(EVERYTHING)
    node = parse_node_config(found["ConfigMap", "healthd"]["data"]["healthd.yaml"], "healthd.yaml")
    assert (node.remediator.report_interval_s, node.remediator.url) == (5, "https://remediator.gpu-health.svc:15180")
    centre = centre_config(found, tmp_path)
    assert (centre.mode.value, centre.budget.isolated_max) == ("act", 4)
    assert (centre.scheduler.kind, centre.scheduler.kubernetes.evict_after_s) == ("kubernetes", 600)
    assert centre.scheduler.kubernetes.node_selector == "gpu=yes,pool=h100"
    assert [Path(file).name for file in centre.playbooks] == ["10-a.yaml", "20-b.yaml"]
    pod = found["Deployment", "remediator"]["spec"]["template"]["spec"]
    places = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {str(Path(file).parent) for file in centre.playbooks} <= places
    assert "/run/secrets/receivers" in places
    images = {each["image"] for (_, name), each in containers(found).items() if name != "remediator"}
    assert images == {f"r.example/node@sha256:{'a' * 64}"}
    assert pod["containers"][0]["image"] == "r.example/centre:7"


def centre_config(found: dict[tuple[str, str], dict[str, Any]], tmp_path: Path) -> Config:
    """As the controller reads it, with its topology here."""
    for name, text in found["ConfigMap", "remediator"]["data"].items():
        (tmp_path / name).write_text(text.replace("/etc/gpu-healthd/topology.yaml", str(tmp_path / "topology.yaml")))
    return load_config(tmp_path / "remediator.yaml")


def containers(found: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Workload and name of a container: the container."""
    return {
        (name, container["name"]): container
        for (kind, name), each in found.items()
        if kind in {"DaemonSet", "Deployment"}
        for group in ("initContainers", "containers")
        for container in each["spec"]["template"]["spec"].get(group, [])
    }


def test_playbooks_of_the_chart_are_the_files_that_the_centre_loads(tmp_path: Path) -> None:
    data = documents(EVERYTHING)["ConfigMap", "remediator-playbooks"]["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    assert data["20-b.yaml"] == PLAYBOOK
    assert load_policy([tmp_path / name for name in sorted(data)]).rules


def test_a_container_that_is_not_privileged_has_no_right_that_it_does_not_need() -> None:
    privileged = set()
    for place, container in containers(documents(EVERYTHING)).items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        if context.get("privileged"):
            privileged.add(place)
        else:
            assert context["allowPrivilegeEscalation"] is False
    assert privileged == {("healthd", "healthd"), ("startup-test", "test")}


def test_another_configuration_makes_new_pods() -> None:
    def marks(values: dict[str, Any]) -> dict[str, str]:
        return {
            name: each["spec"]["template"]["metadata"]["annotations"]["gpu-healthd.dev/config"]
            for (kind, name), each in documents(values).items()
            if kind in {"DaemonSet", "Deployment"}
        }

    before = marks({})
    assert marks({"healthd": {"config": {"accept_injected": True}}})["healthd"] != before["healthd"]
    assert marks({"remediator": {"playbooks": {"a.yaml": "x"}}})["remediator"] != before["remediator"]
    assert marks({"cluster": "training"}) == before


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"remdiator": {}}, "remdiator"),
        ({"remediator": {"mode": "fix-it"}}, "mode"),
        ({"remediator": {"database": {"url": "postgresql://me:secret@db/x"}}}, "url"),
        ({"remediator": {"database": {"url": "sqlite:///x"}}}, "url"),
        ({"remediator": {"replicas": 0}}, "replicas"),
        ({"remediator": {"playbooks": {"../x.yaml": ""}}}, "propertyName '../x.yaml'"),
        ({"remediator": {"secrets": ["tls"]}}, "secrets"),
        ({"images": {"node": {"digest": "sha256:1"}}}, "digest"),
        ({"gpuNodes": [{"label": "gpu", "value": True}]}, "gpuNodes"),
        ({"healthd": {"centreUrl": "http://remediator"}}, "centreUrl"),
        ({"remediator": {"ingress": {"enabled": True}}}, "host"),
        ({"remediator": {"config": {"scheduler": {"kubernetes": {"evict_after_s": 1}}}}}, "rights.evict"),
        ({"startupTest": {"enabled": True}, "admission": {"enabled": False}}, "needs admission.enabled"),
    ],
)
def test_wrong_values_are_refused_with_their_name(values: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=says):
        rendered(values)


def test_the_chart_has_the_versions_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_values_show_every_key_that_the_schema_knows() -> None:
    def keys(schema: dict[str, Any], before: str = "") -> set[str]:
        named: dict[str, Any] = schema.get("properties", {})
        return {key for name, part in named.items() for key in {before + name} | keys(part, f"{before}{name}.")}

    def shown(values: Any, before: str = "") -> set[str]:
        if not isinstance(values, dict):
            return set()
        return {key for name, part in values.items() for key in {before + name} | shown(part, f"{before}{name}.")}

    known = keys(json.loads((CHART / "values.schema.json").read_text())) - {"global"}
    assert known - shown(yaml.safe_load((CHART / "values.yaml").read_text())) <= {
        "healthd.resources.limits"  # none: a preflight runs in there
    }


def test_network_policies_speak_of_ports_and_pods_that_are_there() -> None:
    found = documents(EVERYTHING)
    ports = {port["name"] for container in containers(found).values() for port in container.get("ports", [])}
    workloads = {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]
        for (kind, _), each in found.items()
        if kind in {"DaemonSet", "Deployment"}
    }
    policies = [each["spec"] for (kind, _), each in found.items() if kind == "NetworkPolicy"]
    assert len(policies) == 2
    for policy in policies:
        assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/name"] in workloads
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} <= ports
        assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]


def test_the_values_in_the_documents_are_taken(tmp_path: Path) -> None:
    text = (DEPLOY.parent / "docs" / "how-to" / "kubernetes.md").read_text()
    block = re.search(r"^```yaml\n(# site\.yaml.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    found = documents(yaml.safe_load(block[1]))
    assert "oncall" in centre_config(found, tmp_path).alerts.receivers
    places = {mount["mountPath"] for mount in containers(found)["remediator", "remediator"]["volumeMounts"]}
    assert "/run/secrets/pager" in places
    for name, playbook in found["ConfigMap", "remediator-playbooks"]["data"].items():
        (tmp_path / name).write_text(playbook)
        assert load_policy([tmp_path / name]).rules
