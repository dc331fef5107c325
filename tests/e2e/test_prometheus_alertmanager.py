"""A real Alertmanager with the shipped routes: what explains something else keeps it from being told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from healthd_node import eventually
from prometheus_stack import Alertmanager, Receiver

ON_NODE = {"cluster": "a", "node": "n1"}


@pytest.fixture(scope="module")
def told() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def alertmanager(told: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    program = Alertmanager(tmp_path_factory.mktemp("alertmanager") / "am", told.url)
    try:
        program.start()
        yield program
    finally:
        program.close()


def fire(alertmanager: Alertmanager, *alerts: dict[str, str]) -> None:
    answer = requests.post(f"{alertmanager.url}/api/v2/alerts", json=[{"labels": each} for each in alerts], timeout=10)
    assert answer.ok, answer.text


def silent_about(alertmanager: Alertmanager, labels: dict[str, str]) -> bool:
    shown = alertmanager.get("/api/v2/alerts")
    found = [each for each in shown if each["labels"] == labels]
    return bool(found) and bool(found[0]["status"]["inhibitedBy"])


def nodes_told(told: Receiver) -> set[str]:
    """Nodes of which anybody was told anything."""
    return {alert["labels"].get("node", "") for _, alert in list(told.heard)}


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        (
            ON_NODE | {"alertname": "NodeAgentDown", "scope": "node", "severity": "warning"},
            ON_NODE | {"alertname": "GpuLost", "gpu": "3", "scope": "gpu", "severity": "warning"},
        ),
        (
            {"cluster": "b", "alertname": "ManyAgentsDown", "scope": "cluster", "severity": "critical"},
            {"cluster": "b", "node": "n7", "alertname": "NodeAgentDown", "scope": "node", "severity": "warning"},
        ),
        (
            {"cluster": "c", "alertname": "LeaderMissing", "scope": "controller", "severity": "critical"},
            {"cluster": "c", "node": "n1", "alertname": "NodeUnfit", "scope": "node", "severity": "warning"},
        ),
        (
            {"cluster": "d", "alertname": "BreakerOpen", "scope": "cluster", "severity": "critical"},
            {"cluster": "d", "alertname": "IsolationBudgetUsedUp", "scope": "cluster", "severity": "warning"},
        ),
    ],
    ids=["node-down", "many-down", "no-leader", "breaker"],
)
def test_what_explains_it_keeps_it_quiet(
    alertmanager: Alertmanager, cause: dict[str, str], effect: dict[str, str]
) -> None:
    fire(alertmanager, cause)
    fire(alertmanager, effect)
    eventually(lambda: silent_about(alertmanager, effect), "it is inhibited")
    elsewhere = effect | {"cluster": "z"}
    fire(alertmanager, elsewhere)
    eventually(lambda: any(a["labels"] == elsewhere for a in alertmanager.get("/api/v2/alerts")), "it is taken in")
    assert not silent_about(alertmanager, elsewhere), "another cluster's cause explains nothing here"


def test_nodes_of_a_rack_come_in_one_message_and_others_each_in_their_own(
    alertmanager: Alertmanager, told: Receiver
) -> None:
    rack = {"cluster": "r", "rack": "r07", "scope": "node", "severity": "warning", "alertname": "SourceUnreadable"}
    fire(alertmanager, *(rack | {"node": f"n{number}"} for number in range(4)))
    eventually(lambda: told.told("/day", "SourceUnreadable"), lambda: str(told.heard))
    groups = alertmanager.get("/api/v2/alerts/groups")
    of_rack = [group for group in groups if group["labels"].get("rack") == "r07"]
    assert [len(group["alerts"]) for group in of_rack] == [4]
    alone = {"cluster": "r", "scope": "gpu", "severity": "warning", "alertname": "GpuLost"}
    fire(alertmanager, *(alone | {"node": f"m{number}", "gpu": gpu} for number in range(2) for gpu in "01"))
    eventually(lambda: {"m0", "m1"} <= nodes_told(told), lambda: str(told.heard))
    groups = alertmanager.get("/api/v2/alerts/groups")
    assert [len(g["alerts"]) for g in groups if g["labels"].get("node", "").startswith("m")] == [2, 2]


def test_each_severity_reaches_its_receiver(alertmanager: Alertmanager, told: Receiver) -> None:
    for severity, path in (("critical", "/pager"), ("warning", "/day"), ("info", "/record")):
        name = f"Made{severity.capitalize()}"
        fire(alertmanager, {"cluster": "s", "alertname": name, "severity": severity, "scope": "cluster"})
        eventually(lambda path=path, name=name: told.told(path, name), lambda: str(told.heard))  # type: ignore[misc] # bound at once
