"""The configuration of receivers, and who is told of what."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from remediator.config import ConfigError, load_config
from remediator.decisions.group_incidents import announce_group_incident, open_group_incident
from remediator.model.journal_records import Action, Incident, JobRef, NodeRecord
from remediator.model.node_location import NodeLocation
from remediator.notifications.alert_routes import match_receivers
from remediator.notifications.alert_settings import AlertSettings
from remediator.notifications.message_content import build_action_message
from remediator.notifications.secret_files import SecretError, read_secret
from remediator.notifications.standard_webhooks import read_signing_keys
from remediator.state.cluster_state import ClusterState
from tests.unit.remediator.act.webhooks.peer import AT, message
from vocabulary.finding import Finding, Severity
from vocabulary.hardware.gpu_architecture import Architecture
from vocabulary.identity import Component, ComponentKind

CHAT = {"kind": "slack", "url_file": "/etc/gpu-healthd/chat"}
PAGER = {"kind": "pagerduty", "routing_key_file": "/etc/gpu-healthd/pager"}
RMA = {"kind": "ticket", "url": "https://vendor.example/rma"}


def telling(**alerts: Any) -> AlertSettings:
    return msgspec.convert({"receivers": {"chat": CHAT, "pager": PAGER, "rma": RMA}, **alerts}, AlertSettings)


def test_without_routes_tickets_go_where_tickets_are_taken_and_all_else_to_all_others() -> None:
    ways = telling().ways
    assert match_receivers(message(), ways) == ("chat", "pager")
    assert match_receivers(message(kind="ticket"), ways) == ("rma", "chat", "pager")


ROUTES = [
    {"receivers": ["rma"], "kinds": ["ticket"], "continue": True},
    {"receivers": [], "drill": True},
    {"receivers": ["pager", "chat"], "severities": ["fatal"], "labels": {"rack": "r*"}},
    {"receivers": ["pager"], "nodes": ["login*"], "rules": ["gpu-*"]},
    {"receivers": ["chat"]},
]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ("pager", "chat")),
        ({"severity": Severity.ERROR}, ("chat",)),
        ({"labels": {}}, ("chat",)),
        ({"labels": {}, "node": "login1"}, ("pager",)),
        ({"labels": {}, "node": "login1", "rule": "x"}, ("chat",)),
        ({"kind": "ticket", "severity": Severity.INFO}, ("rma", "chat")),
        ({"injected": True}, ()),
    ],
)
def test_the_first_route_that_fits_decides(changes: dict[str, Any], names: tuple[str, ...]) -> None:
    assert match_receivers(message(**changes), telling(routes=ROUTES).ways) == names


@pytest.mark.parametrize(
    ("alerts", "says"),
    [
        ("{receivers: {chat: {kind: slck}}}", "Invalid value 'slck'"),
        ("{receivers: {chat: {kind: slack}}}", "give exactly one of 'url' and 'url_file'"),
        ("{receivers: {chat: {kind: slack, url: 'https://me:secret@x/y'}}}", "put the URL into a file"),
        ("{receivers: {chat: {kind: slack, url: 'ftp://x/secret'}}}", "must begin with http"),
        ("{receivers: {chat: {kind: slack, url: 'http://x', grup_s: 1}}}", "did you mean 'group_s'"),
        ("{receivers: {chat: {kind: slack, url: 'http://x', text: '{% if %}'}}}", "template, line 1"),
        ("{receivers: {rma: {kind: ticket, url: 'http://x', body: '{{ a'}}}", "template, line 1"),
        ("{receivers: {hook: {kind: webhook, url: 'http://x'}}}", "missing required field `keys_file`"),
        ("{receivers: {'a b': {kind: slack, url: 'http://x'}}}", "a name may contain letters"),
        ("{routes: [{receivers: [x]}]}", "route 1 names the receiver 'x'; configured: none"),
        (
            "{webhooks: ['http://x'], routes: [{receivers: [webhook-1], kinds: [alert]}]}",
            "last route must match everything",
        ),
        ("{heartbeat: {}}", "exactly one of 'url'"),
        ("{webhooks: ['http://x'], heartbeat: {receiver: webhook-1}}", "is not a receiver of kind alertmanager"),
        ("{heartbeat: {receiver: x, url: 'http://x'}}", "not both"),
        ("{webhooks: ['ftp://secret']}", "must begin with http"),
        ("{public_url: x}", "public_url must begin"),
    ],
)
def test_a_mistake_is_named_and_no_secret_with_it(alerts: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(f"alerts: {alerts}")
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "r.yaml")
    assert says in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"# x\n\n", "is empty"),
        (b"\xff", "printable ASCII"),
        (b"a\tb", "printable"),
        (b"a\nb", "2 lines"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_by_its_file(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(SecretError, match=says):
        read_secret(str(file))


def test_a_secret_may_not_be_endless() -> None:
    with pytest.raises(SecretError, match="too large"):
        read_secret("/dev/zero")


@pytest.mark.parametrize("line", ["whsec_c2hvcnQ=", "c2hvcnQ=" * 4, "whsec_***", "whsec_" + "A" * 200])
def test_a_key_that_is_none_is_told_by_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{line}\n")
    with pytest.raises(SecretError, match="key 1 is not") as error:
        read_signing_keys(str(tmp_path / "keys"))
    assert line not in str(error.value)


def test_a_message_says_how_grave_it_is_where_and_where_to_look() -> None:
    gpu = Component(kind=ComponentKind.GPU, name="3")
    findings = [
        Finding(
            id=f"f{n}",
            node="gpu-a7",
            check="xid",
            code="79",
            component=gpu,
            severity=severity,
            summary="s",
            first_seen=AT,
            last_seen=AT,
            origin="o",
        )
        for n, severity in enumerate((Severity.WARNING, Severity.ERROR))
    ]
    action = Action(
        id="a",
        incident="inc-1",
        decision="d",
        node="gpu-a7",
        verb="alert",
        planned_at=AT,
        deadline=AT,
        data={"how": "look"},
    )
    incident = Incident(id="inc-1", node="gpu-a7", title="t", opened_at=AT, rule="gpu-lost", injected=True)
    node = NodeRecord(node="gpu-a7", jobs=(JobRef("train", 1),), architectures=(Architecture.HOPPER,))
    config = telling(public_url="https://h.example/", node_labels={"gpu-*": {"rack": "r1"}, "gpu-a*": {"rack": "r2"}})
    said = build_action_message(action, incident, findings, node, config, "c")
    assert (said.severity, said.page, said.injected) == (Severity.ERROR, True, True)
    assert said.link == "https://h.example/incidents/inc-1"
    assert said.labels == {"state": "healthy", "architecture": "hopper", "job": "train", "rack": "r2"}
    ticket = msgspec.structs.replace(action, verb="ticket")
    assert not build_action_message(ticket, incident, findings, node, config, "c").page
    unknown = build_action_message(action, None, (), None, config, "c")
    assert (unknown.severity, unknown.page) == (Severity.UNCLASSIFIED, False)


@pytest.mark.parametrize(
    ("about", "labels"),
    [
        ("cluster:breaker", {}),
        ("silence:cluster", {}),
        ("silence:rack:r12", {"rack": "r12"}),
        ("switch:leaf:3", {"switch": "leaf:3"}),
        ("job:train", {"job": "train"}),
    ],
)
def test_what_concerns_many_nodes_wakes_people_and_goes_where_its_place_goes(
    about: str, labels: dict[str, str]
) -> None:
    state = ClusterState()
    why = "nothing more is isolated"
    incident = announce_group_incident(
        state, open_group_incident(state, about, "breaker", why, (), AT), "breaker", "", AT
    )
    (alert,) = state.actions.values()
    said = build_action_message(alert, incident, (), None, telling(), "c")
    assert (said.severity, said.page, said.labels) == (Severity.ERROR, True, labels)
    on_call = [{"receivers": ["pager"], "severities": ["fatal", "error"]}, {"receivers": ["chat"]}]
    assert match_receivers(said, telling(routes=on_call).ways) == ("pager",)


def test_a_node_is_told_with_its_places_and_the_site_has_the_last_word() -> None:
    node = NodeRecord(node="n1", places=NodeLocation(rack="r1", switch="s1", partitions=("p",)))
    action = Action(id="a", incident="i", decision="d", node="n1", verb="alert", planned_at=AT, deadline=AT)
    said = build_action_message(action, None, (), node, telling(node_labels={"n*": {"rack": "row 3"}}), "c")
    assert said.labels == {"state": "healthy", "rack": "row 3", "switch": "s1"}


def test_the_examples_of_the_document_are_right() -> None:
    document = (Path(__file__).parents[5] / "docs" / "how-to" / "webhooks.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", document, re.DOTALL)
    kinds = set()
    for block in blocks:
        found = yaml.safe_load(block)
        alerts = found.get("alerts") or {"receivers": found}
        kinds |= {one["kind"] for one in alerts["receivers"].values()}
        msgspec.convert(alerts, AlertSettings)
    assert kinds >= {"webhook", "slack", "teams", "pagerduty", "opsgenie", "alertmanager", "email", "ticket"}
