"""A site's own words, and what becomes of the message when they break."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.notifications.message_templates import SHOWN_MAX, TEXT_MAX, render_message_texts
from remediator.notifications.ticket import TicketWebhook
from tests.unit.remediator.act.webhooks.peer import AT, delivery, message, resolved


def test_templates_see_the_messages() -> None:
    text = "{{ count }}{% for m in messages %} {{ m.node }}/{{ m.labels.rack }}{% endfor %}"
    assert render_message_texts("{{ severity | upper }}\n{{ node }}", text, (delivery(1), delivery(2))) == (
        "FATAL n1",
        "2 n1/r1 n2/r1",
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ nothing }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ labels.update({'a': 'b'}) }}",
        "{% for i in range(999999999) %}x{% endfor %}",
        "{{ node | nofilter }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_that_breaks_or_reaches_out_costs_no_message(template: str) -> None:
    title, text = render_message_texts(template, template, (delivery(1),))
    assert title == "fatal: n1: xid/79 on gpu 3"
    assert text.startswith("a GPU fell off the bus\nrule gpu-lost\nincident inc-1\n")
    assert "the template of this receiver failed" in text


@given(st.text(), st.text(), st.text())
def test_what_nodes_say_is_never_a_template(title: str, node: str, text: str) -> None:
    said = message(title="{{ 7 * 7 }}" + title, node=node, text="{% raise %}" + text)
    found_title, found_text = render_message_texts("{{ title }}", "{{ text }}", (delivery(1, message=said),))
    assert found_title.startswith("{{ 7 * 7 }}")
    assert found_text.startswith("{% raise %}")


def test_what_is_too_much_is_counted() -> None:
    many = tuple(delivery(n) for n in range(SHOWN_MAX + 5))
    title, text = render_message_texts("", "", many)
    assert title == f"c: {SHOWN_MAX + 5} alerts on n0, n1, n10 and {SHOWN_MAX + 2} more"
    assert text.endswith("… and 5 more; 'healthctl incidents' lists them all")
    assert len(render_message_texts("", "{{ text * 1000 }}" * 10, many)[1]) <= TEXT_MAX


def test_what_is_over_is_said_so() -> None:
    assert render_message_texts("", "", (resolved(delivery(1)),))[0] == "resolved: fatal: n1: xid/79 on gpu 3"
    assert render_message_texts("", "", (delivery(2), resolved(delivery(1))))[0] == "c: 1 alert, 1 resolved on n1, n2"


def ticket(body: str, tmp_path: Path) -> TicketWebhook:
    (tmp_path / "auth").write_text("Bearer abc")
    return TicketWebhook(url="https://vendor.example/rma", authorization_file=str(tmp_path / "auth"), body=body)


def test_a_ticket_is_the_site_s_own_form(tmp_path: Path) -> None:
    one = ticket('{"serial": {{ labels.serial | tojson }}, "fault": {{ title | tojson }}}', tmp_path)
    item = delivery(1, message=message(1, title='say "x"', labels={"serial": "A1"}))
    request = one.compose(one.envelope("msg_a", (item,), AT))
    assert json.loads(request.body) == {"serial": "A1", "fault": 'say "x"'}
    assert (request.headers["authorization"], request.headers["idempotency-key"]) == ("Bearer abc", "msg_a")


def test_a_ticket_whose_form_breaks_goes_out_in_the_generic_one(tmp_path: Path) -> None:
    one = ticket("{{ labels.serial }}", tmp_path)
    body = json.loads(one.compose(one.envelope("msg_a", (delivery(1),), AT)).body)
    assert body["type"] == "gpu_healthd.alerts"
    assert "the template of this receiver failed" in body["data"]["text"]
    assert body["data"]["alerts"][0]["node"] == "n1"


def test_the_records_survive_their_encoding() -> None:
    item = resolved(delivery(1))
    assert msgspec.json.decode(msgspec.json.encode(item), type=type(item)) == item
