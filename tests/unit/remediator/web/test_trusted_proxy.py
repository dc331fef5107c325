"""The audit log has the caller's address as the trusted proxy tells it, and believes nobody else about it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.api.trusted_proxy import HOPS_MAX, client_behind_proxy, is_proxy_address
from remediator.server_config import ProxyRoles, TrustedProxy, WebSettings
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.simulated_browser import Browser

PROXY = TrustedProxy(addresses=("192.0.2.7", "10.1.0.0/24", "2001:db8:1::/64"), roles=ProxyRoles(operator=("*",)))
ANN = {"x-forwarded-user": "ann@example.org", "x-forwarded-groups": ""}
STRANGER = "203.0.113.66"


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.7", ["198.51.100.9"], "198.51.100.9"),
        ("192.0.2.7", ["1.1.1.1, 198.51.100.9"], "198.51.100.9"),  # the caller made the first one up
        ("192.0.2.7", ["1.1.1.1", "198.51.100.9, 10.1.0.3"], "198.51.100.9"),  # through two of ours
        ("10.1.0.3", ["198.51.100.9:4711"], "198.51.100.9"),
        ("2001:db8:1::5", ["[2001:db8:2::9]:443"], "2001:db8:2::9"),
        ("::ffff:192.0.2.7", ["::ffff:198.51.100.9"], "198.51.100.9"),
        ("192.0.2.7", ["fe80::1%<script>"], "fe80::1"),
        ("192.0.2.7", [], "192.0.2.7"),
        ("192.0.2.7", [""], "192.0.2.7"),
        ("192.0.2.7", ["198.51.100.9, unknown"], "192.0.2.7"),  # the nearest hop is not told: nothing behind it counts
        ("192.0.2.7", ["10.1.0.9"], "10.1.0.9"),  # somebody on the proxy's own machines
        (STRANGER, ["198.51.100.9"], STRANGER),
        ("", ["198.51.100.9"], ""),
    ],
)
def test_the_nearest_hop_that_is_no_proxy_of_ours_is_the_caller(peer: str, forwarded: list[str], found: str) -> None:
    assert client_behind_proxy(PROXY, peer, forwarded) == found


def test_without_a_trusted_proxy_nobody_is_believed() -> None:
    assert client_behind_proxy(None, "192.0.2.7", ["198.51.100.9"]) == "192.0.2.7"


@given(st.lists(st.text(max_size=30), max_size=4), st.ip_addresses())
def test_what_the_caller_sends_along_changes_nothing(made_up: list[str], real: ipaddress.IPv4Address) -> None:
    """The proxy adds what it saw; whatever stood there before, that is found, or a proxy where that was one."""
    told = client_behind_proxy(PROXY, "192.0.2.7", [*made_up, str(real)])
    seen = client_behind_proxy(PROXY, "192.0.2.7", [str(real)])
    assert told == seen or is_proxy_address(PROXY, str(real))
    ipaddress.ip_address(told)
    assert client_behind_proxy(PROXY, STRANGER, [*made_up, str(real)]) == STRANGER


def test_a_row_of_hops_is_looked_at_so_far_and_no_further() -> None:
    assert client_behind_proxy(PROXY, "192.0.2.7", ["198.51.100.9", *["10.1.0.1"] * HOPS_MAX]) == "10.1.0.1"


@pytest.fixture
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    centre = Inside(tmp_path_factory.mktemp("centre"), web=WebSettings(proxy=PROXY))
    yield centre
    centre.close()


def address_of(centre: Inside, kind: str) -> object:
    [found] = [event.data.get("address") for _, event in centre.journal.events(0, 1000) if event.kind == kind]
    return found


def test_a_page_and_the_api_write_down_whom_the_proxy_names(behind: Inside) -> None:
    browser = Browser(behind)
    headers = ANN | {"x-forwarded-for": f"1.1.1.1, {STRANGER}"}
    csrf = browser.get("/control", headers).body.decode().split('name="csrf" value="')[1].split('"')[0]
    sent = browser.post(
        "/control/mode",
        {"csrf": csrf, "mode": "observe", "text": "why not"},
        headers | {"sec-fetch-site": "same-origin"},
    )
    assert sent.status == 303, sent.body
    assert address_of(behind, "mode_set") == STRANGER
    reset = behind.call(
        "POST", "/v1/alerts/silences", "ann", {"until": 4e9, "text": "x"}, {"x-forwarded-for": "198.51.100.9"}
    )
    assert reset.status == 200, reset.body
    assert address_of(behind, "silenced") == "198.51.100.9"


def test_a_forged_header_from_somebody_else_is_not_believed(behind: Inside) -> None:
    forged = {"x-forwarded-for": "198.51.100.9"}
    sent = behind.call("POST", "/v1/mode", "ann", {"mode": "observe"}, forged, client=(STRANGER, 1))
    assert sent.status == 204, sent.body
    assert address_of(behind, "mode_set") == STRANGER
