"""Who may look, for how long, and from where a form must come."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediator.config import ConfigError, load_config
from remediator.model.credentials import Role
from remediator.server_config import AccessLimits, ProxyRoles, TlsSettings, TrustedProxy, WebSettings
from remediator.web.login_form import LOGIN_WEIGHT
from remediator.web.page_authentication import identity_from_headers
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.simulated_browser import Browser

HOST = {"host": "centre:15180"}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    roles = ProxyRoles(viewer=("*",), operator=("oncall",), admin=("root",))
    proxy = TrustedProxy(addresses=("192.0.2.7", "10.1.0.0/24"), roles=roles)
    centre = Inside(tmp_path_factory.mktemp("centre"), web=WebSettings(proxy=proxy))
    yield centre
    centre.close()


def test_a_login_begins_a_session_that_the_browser_alone_keeps(shared: Inside) -> None:
    browser = Browser(shared)
    answer = browser.post("/login", {"token": shared.token["ann"], "next": "/nodes?match=x"})
    assert (answer.status, answer.headers["location"]) == (303, "/nodes?match=x")
    cookie = answer.headers["set-cookie"].lower()
    for word in ("httponly", "samesite=strict", "path=/", "max-age=43200"):
        assert word in cookie
    assert shared.token["ann"] not in answer.headers["set-cookie"]
    assert browser.get("/").status == 200
    assert (
        shared.call("GET", "/v1/status", headers={"cookie": f"gpu-healthd={browser.cookies['gpu-healthd']}"}).status
        == 401
    )


@pytest.mark.parametrize("who", ["n1", "join"])
def test_a_token_that_is_no_persons_gets_no_pages(shared: Inside, who: str) -> None:
    answer = Browser(shared).post("/login", {"token": shared.token[who], "next": "/"})
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "", "/a\nb"]
)
def test_a_login_leads_nowhere_else(shared: Inside, target: str) -> None:
    answer = Browser(shared).post("/login", {"token": shared.token["ann"], "next": target})
    assert answer.headers["location"] == "/"


def test_a_session_ends_with_its_token(shared: Inside) -> None:
    token = shared.tokens.issue(Role.VIEWER, "eve", time.time())
    shared.token["eve"] = token
    browser = Browser(shared).log_in("eve")
    assert browser.get("/").status == 200
    shared.tokens.revoke(time.time(), role=Role.VIEWER, name="eve")
    assert browser.get("/").status == 303


def test_a_session_ends_with_a_logout_also_for_who_kept_the_cookie(shared: Inside) -> None:
    browser = Browser(shared).log_in("ann")
    kept = dict(browser.cookies)
    assert browser.post("/logout", {"csrf": browser.csrf()}).status == 303
    assert browser.cookies == {}
    browser.cookies = kept
    assert browser.get("/").status == 303
    kinds = [event.kind for _, event in shared.journal.events(0, 10_000)]
    assert "session_begun" in kinds
    assert "session_ended" in kinds


def test_strangers_keep_nobody_out_who_is_logged_in(tmp_path: Path) -> None:
    limits = AccessLimits(unknown_per_s=0.001, unknown_burst=2)
    centre = Inside(tmp_path, limits=limits)
    try:
        ann = Browser(centre).log_in("ann")
    finally:
        centre.close()
    restarted = Inside(tmp_path, limits=limits)
    try:
        ann.centre = restarted
        stranger = Browser(restarted)
        statuses = []
        for n in range(4):
            stranger.cookies["gpu-healthd"] = f"guess-{n}"
            statuses.append(stranger.get("/").status)
        assert statuses == [303, 303, 429, 429]
        assert ann.get("/").status == 200
        assert stranger.get("/login").status == 200
    finally:
        restarted.close()


def test_good_logins_are_slowed_down_too(tmp_path: Path) -> None:
    centre = Inside(tmp_path, limits=AccessLimits(person_per_s=0.001, person_burst=2 * LOGIN_WEIGHT))
    try:
        fields = {"token": centre.token["vic"], "next": "/"}
        assert [Browser(centre).post("/login", fields).status for _ in range(3)] == [303, 303, 429]
        assert Browser(centre).post("/login", fields | {"token": centre.token["ann"]}).status == 303
        begun = [event for _, event in centre.journal.events(0, 1000) if event.kind == "session_begun"]
        assert len(begun) == 3
    finally:
        centre.close()


FROM = [
    ({"sec-fetch-site": "same-origin"}, True),
    ({"sec-fetch-site": "cross-site"}, False),
    ({"sec-fetch-site": "same-site"}, False),
    ({"sec-fetch-site": "none"}, False),
    ({"origin": "http://centre:15180", **HOST}, True),
    ({"origin": "http://evil.example", **HOST}, False),
    ({"origin": "null", **HOST}, False),
    ({"origin": "http://[", **HOST}, False),
    ({"origin": "http://[v1.x]y", **HOST}, False),
    ({"origin": "http://centre:15180", "sec-fetch-site": "cross-site", **HOST}, False),
    ({"origin": "http://evil.example", "x-forwarded-host": "evil.example", **HOST}, False),  # not by a proxy of ours
    ({}, False),
]


@pytest.mark.parametrize(("headers", "ours"), FROM)
def test_a_form_must_come_from_one_of_our_pages(shared: Inside, headers: dict[str, str], *, ours: bool) -> None:
    answer = Browser(shared).post("/login", {"token": shared.token["ann"], "next": "/"}, headers)
    assert answer.status == (303 if ours else 403)
    browser = Browser(shared).log_in("ann")
    fields = {"csrf": browser.csrf(), "text": "x"}
    assert browser.post("/nodes/none/actions/hold", fields, headers).status == (404 if ours else 403)


def test_anothers_form_does_not_fit(shared: Inside) -> None:
    ann, root = Browser(shared).log_in("ann"), Browser(shared).log_in("root")
    assert ann.post("/logout", {"csrf": root.csrf()}).status == 403
    assert ann.post("/logout", {}).status == 403
    assert ann.get("/").status == 200


def test_wrong_logins_are_slowed_down(tmp_path: Path, shared: Inside) -> None:
    centre = Inside(tmp_path, limits=AccessLimits(unknown_per_s=0.001, unknown_burst=2))
    try:
        browser = Browser(centre)
        assert [browser.post("/login", {"token": f"ghd_{n}", "next": "/"}).status for n in range(3)] == [401, 401, 429]
        browser.cookies["gpu-healthd"] = "guess"
        assert browser.get("/").status == 429
        browser.cookies = {}
        assert (
            browser.post("/login", {"token": centre.token["ann"], "next": "/"}).status == 303
        )  # a good one is never kept out
    finally:
        centre.close()


def test_under_tls_the_session_travels_encrypted_alone(tmp_path: Path) -> None:
    centre = Inside(tmp_path, tls=TlsSettings(certificate="c", key="k"))
    try:
        cookie = Browser(centre).post("/login", {"token": centre.token["ann"], "next": "/"}).headers["set-cookie"]
        assert cookie.startswith("__Host-gpu-healthd=")
        assert "secure" in cookie.lower()
    finally:
        centre.close()


def test_where_people_come_by_tls_the_session_travels_encrypted_alone(tmp_path: Path) -> None:
    centre = Inside(tmp_path, web=WebSettings(url="https://centre.example"))
    try:
        browser = Browser(centre)
        cookie = browser.post("/login", {"token": centre.token["ann"], "next": "/"}).headers["set-cookie"]
        assert cookie.startswith("__Host-gpu-healthd=")
        assert "secure" in cookie.lower()
        assert browser.get("/").status == 200
    finally:
        centre.close()


ANN = {"x-forwarded-user": "ann@example.org", "x-forwarded-groups": "staff,oncall"}


@pytest.mark.parametrize(
    ("groups", "role"), [("staff", "viewer"), ("staff,oncall", "operator"), (" oncall , root", "admin"), ("", "viewer")]
)
def test_a_proxy_says_who_it_is(behind: Inside, groups: str, role: str) -> None:
    answer = Browser(behind).get("/", ANN | {"x-forwarded-groups": groups})
    assert answer.status == 200
    assert re.search(rf"ann@example\.org <small>{role}</small>".encode(), answer.body)


def test_nobody_else_may_say_it(behind: Inside) -> None:
    assert Browser(behind, client=("192.0.2.8", 1)).get("/", ANN).status == 303
    assert Browser(behind, client=("10.1.0.9", 1)).get("/", ANN).status == 200
    assert Browser(behind, client=None).get("/", ANN).status == 303


def test_what_a_proxy_says_twice_it_does_not_say(behind: Inside) -> None:
    proxy = behind.config.web.proxy
    assert proxy is not None
    assert identity_from_headers(proxy, ["ann", "root"], ["root"]) is None
    assert identity_from_headers(proxy, [], ["root"]) is None
    assert identity_from_headers(proxy, ["ann"], ["staff", "root"]) is None
    assert identity_from_headers(proxy, ["a\x00"], ["root"]) is None
    assert (
        identity_from_headers(
            TrustedProxy(addresses=("10.0.0.1",), roles=ProxyRoles(viewer=("staff",))), ["ann"], ["other"]
        )
        is None
    )


def test_a_proxys_person_acts_with_their_own_name_and_their_own_forms(behind: Inside) -> None:
    browser = Browser(behind)
    page = browser.get("/nodes/n1/actions/hold", ANN)
    assert page.status == 404  # no node has reported here; the rule let them in
    form = {"sec-fetch-site": "same-origin"}
    assert browser.post("/nodes/n1/actions/hold", {"text": "x", "csrf": "0" * 32}, ANN | form).status == 403


def test_a_link_from_another_site_is_asked_once_more(shared: Inside) -> None:
    abroad = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answer = Browser(shared).get('/nodes?match="><script>', abroad)
    assert answer.status == 200
    assert b'http-equiv="refresh"' in answer.body
    assert b"<script>" not in answer.body


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("web: {proxy: {addresses: [0.0.0.0/0], roles: {}}}", "any client could forge its identity"),
        ("web: {proxy: {addresses: [], roles: {}}}", "addresses is empty"),
        ("web: {proxy: {addresses: [10.0.0.300], roles: {}}}", "10.0.0.300"),
        ("web: {proxy: {addresses: [10.0.0.5]}}", "roles"),
        ("web: {url: 'javascript:x'}", "https?"),
        ("web: {session_hours: 3}", "did you mean 'session_h'"),
    ],
)
def test_a_door_that_would_stand_open_is_refused_at_start(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)):
        load_config(path)
