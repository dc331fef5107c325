"""What the chart has for Prometheus' operator and Grafana's sidecar: the rules and dashboards of `dashboards`, and no others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.helm_chart import FILES, list_chart_files
from tests.conftest import skip_or_fail
from tests.unit.deploy.chart import DEPLOY, documents

SOURCES = DEPLOY.parent / "dashboards"
ALL: dict[str, Any] = {part: {"enabled": True} for part in ("rules", "scrape", "dashboards")}
KINDS = ("PrometheusRule", "PodMonitor")


def monitoring(**values: Any) -> dict[str, Any]:
    return {"cluster": "train-a", "monitoring": values}


def groups_of(name: str) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load((SOURCES / "prometheus" / f"{name}.yaml").read_text())["groups"]
    return groups


def boards(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """File name: the ConfigMap that has it."""
    return {
        file: each
        for (kind, name), each in found.items()
        if kind == "ConfigMap" and name.startswith("dashboard-")
        for file in each["data"]
    }


def test_the_chart_carries_the_very_files() -> None:
    there = {str(file.relative_to(FILES)): file.read_bytes() for file in FILES.glob("**/*") if file.is_file()}
    assert there == {name: source.read_bytes() for name, source in list_chart_files().items()}, "python -m dashboards"
    assert len(there) == len(list((SOURCES / "grafana").glob("*.json"))) + 2


def test_without_being_asked_it_makes_nothing_that_a_cluster_may_not_know() -> None:
    found = documents({})
    assert not [name for kind, name in found if kind in KINDS]
    assert not boards(found)


RULES = pytest.mark.parametrize("name", ["recording", "alerts"])


@RULES
def test_the_rules_are_those_of_the_files(name: str) -> None:
    found = documents(monitoring(rules={"enabled": True}, labels={"release": "main"}))
    rule = found["PrometheusRule", f"gpu-healthd-{name}"]
    assert rule["spec"] == {"groups": groups_of(name)}
    assert rule["metadata"]["labels"] == {"app.kubernetes.io/part-of": "gpu-healthd", "release": "main"}


@RULES
def test_prometheus_takes_the_rules_of_the_chart(name: str, tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        skip_or_fail("no promtool here (tests/system_packages.sh)")
    rules = documents(monitoring(rules={"enabled": True}))["PrometheusRule", f"gpu-healthd-{name}"]["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    command = ["promtool", "check", "rules", tmp_path / "rules.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    count = sum(len(group["rules"]) for group in groups_of(name))
    assert (done.returncode, f"{count} rules found" in done.stdout) == (0, True), done.stdout + done.stderr


def test_alerts_and_panels_lead_where_a_site_says() -> None:
    found = documents(
        monitoring(
            rules={"enabled": True, "documents": "https://docs.example.org/gpu"},
            dashboards={"enabled": True, "web": "https://centre.example.org:15180"},
        )
    )
    alerts = [
        rule for group in found["PrometheusRule", "gpu-healthd-alerts"]["spec"]["groups"] for rule in group["rules"]
    ]
    for rule in alerts:
        assert rule["annotations"]["runbook_url"].startswith("https://docs.example.org/gpu/how-to/on-call.html#")
    for file, each in boards(found).items():
        variables = json.loads(each["data"][file])["templating"]["list"]
        (web,) = [variable for variable in variables if variable["name"] == "web"]
        assert web["current"]["value"] == web["query"] == "https://centre.example.org:15180"
        assert "gpu-health.example" not in each["data"][file]


def test_each_dashboard_is_one_that_the_sidecar_finds() -> None:
    found = boards(documents(monitoring(dashboards={"enabled": True, "annotations": {"folder": "x"}})))
    sources = {f"gpu-healthd-{file.name}": file.read_text() for file in (SOURCES / "grafana").glob("*.json")}
    assert {file: each["data"][file] for file, each in found.items()} == sources
    for each in found.values():
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "GPU health", "folder": "x"}
        assert len(json.dumps(each)) < 2**18, "kubectl apply keeps a copy in an annotation, which has this limit"


def test_what_is_scraped_has_the_labels_that_rules_and_dashboards_ask_for() -> None:
    found = documents(monitoring(scrape={"enabled": True, "rackLabel": "example.org/rack-name"}))
    labels: dict[str, dict[str, Any]] = {}
    for job in ("healthd", "remediator"):
        spec = found["PodMonitor", job]["spec"]
        workload = found["DaemonSet" if job == "healthd" else "Deployment", job]["spec"]["template"]
        assert spec["selector"]["matchLabels"].items() <= workload["metadata"]["labels"].items()
        assert workload["metadata"]["labels"][spec["jobLabel"]] == job
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for port in workload["spec"]["containers"][0]["ports"]}
        labels[job] = {each.pop("targetLabel"): each for each in endpoint["relabelings"]}
    assert labels == {
        "healthd": {
            "cluster": {"replacement": "train-a"},
            "node": {"sourceLabels": ["__meta_kubernetes_pod_node_name"]},
            "rack": {"sourceLabels": ["__meta_kubernetes_node_label_example_org_rack_name"]},
        },
        "remediator": {"cluster": {"replacement": "train-a"}},
    }
    assert found["PodMonitor", "healthd"]["spec"]["attachMetadata"] == {"node": True}


def test_prometheus_believes_the_centre_by_the_name_and_the_authority_that_nodes_do() -> None:
    (endpoint,) = documents(monitoring(scrape={"enabled": True}))["PodMonitor", "remediator"]["spec"][
        "podMetricsEndpoints"
    ]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == (
        "https",
        {"ca": {"configMap": {"name": "remediator-ca", "key": "ca.crt"}}, "serverName": "remediator.gpu-health.svc"},
    )
    sample = yaml.safe_load((DEPLOY / "prometheus" / "prometheus-kubernetes.yaml").read_text())["scrape_configs"]
    assert sample[1]["tls_config"]["server_name"] == endpoint["tlsConfig"]["serverName"]
    namespace = yaml.safe_load((DEPLOY / "kubernetes" / "namespace.yaml").read_text())["metadata"]["name"]
    for job in sample:
        assert job["kubernetes_sd_configs"][0]["namespaces"] == {"names": [namespace]}


@pytest.mark.parametrize("part", ["healthd", "remediator"])
def test_what_is_not_installed_is_not_scraped(part: str) -> None:
    found = documents(monitoring(**ALL) | {part: {"enabled": False}})
    assert [name for kind, name in found if kind == "PodMonitor"] == [
        each for each in ("healthd", "remediator") if each != part
    ]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"rules": {"documents": 'https://x"y'}}, "documents"),
        ({"dashboards": {"web": "https://x/"}}, "web"),
        ({"dashboards": {"web": "javascript:alert(1)"}}, "web"),
        ({"scrape": {"rackLabel": "a b"}}, "rackLabel"),
        ({"dashboards": {"labels": {"grafana_dashboard": 1}}}, "grafana_dashboard"),
        ({"alerts": {}}, "alerts"),
    ],
)
def test_a_value_that_could_not_be_meant_is_refused_with_its_name(values: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=says):
        documents(monitoring(**values))


def test_the_values_in_the_documents_are_taken() -> None:
    text = (DEPLOY.parent / "docs" / "how-to" / "dashboards.md").read_text()
    block = re.search(r"^```yaml\n(# values of the chart.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    found = documents(yaml.safe_load(block[1]))
    assert {kind for kind, _ in found} >= set(KINDS)
    assert boards(found)
    assert found["PodMonitor", "healthd"]["metadata"]["labels"]["release"] == "kube-prometheus-stack"
