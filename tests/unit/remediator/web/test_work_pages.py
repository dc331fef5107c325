"""Incidents, jobs, approvals, alerts, the audit log, the mode: what the pages show, what their forms do, whom they let."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from remediator.model.journal_records import Incident
from remediator.model.plan_steps import Mode
from remediator.model.views_evidence import EvidenceEntry
from remediator.store.evidence_store import EvidenceStore
from remediator.web import blast_radius, plan_impact
from remediator.web.template_rendering import HEADERS
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import EVIL, finding, report
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_pages import Outline
from vocabulary.health import Health
from vocabulary.messages.evidence_bundle import EvidenceBundle, RankStack
from vocabulary.messages.swap_messages import JobSwap, LostRank
from vocabulary.messages.wire import encode_message

JOB = f"job/{EVIL}"
SWAPS = (
    JobSwap(
        job=JOB, attempt=0, at=1_700_000_000.0, outcome="swapped", generation=1, lost_ranks=3, seconds=0.261,
        lost=(LostRank(3, "n4", "n1"), LostRank(2, "n4", "n1")), phases={"met": 0.026, "state": 0.1}, lost_steps=0,
        source="memory",
    ),
    JobSwap(
        job=JOB, attempt=0, at=1_700_000_100.0, outcome=EVIL[:64], lost=(LostRank(1, EVIL, EVIL),), lost_ranks=1,
        phases={EVIL[:64]: 1.0}, source=EVIL, reason=EVIL, ranks=8, ranks_before=16,
    ),
    JobSwap(job="another", attempt=0, at=1.0, outcome="grown", source="another job's"),
)  # fmt: skip


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def in_trouble(place: Path, mode: Mode = Mode.RECOMMEND) -> Inside:
    centre = Inside(place, mode)
    report(centre, "n1", findings=(finding("n1", EVIL),), job=JOB, health=Health.UNHEALTHY, product=EVIL, swaps=SWAPS)
    report(centre, "n2")
    until(lambda: [i for i in centre.service.engine.snapshot.incidents.values() if i.answer], "an incident is decided")
    return centre


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    centre = in_trouble(tmp_path_factory.mktemp("centre"))
    yield centre
    centre.close()


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = in_trouble(tmp_path, Mode.APPROVE)
    yield centre
    centre.close()


def incident_of(centre: Inside) -> str:
    return next(iter(centre.service.engine.snapshot.incidents))


def text_of(browser: Browser, path: str) -> str:
    answer = browser.get(path)
    assert answer.status == 200, answer.body
    return " ".join(Outline(answer.body).text.split())


def form(browser: Browser, path: str, action: str, **fields: str) -> dict[str, str]:
    """The hidden fields of the page's form that goes there, and what somebody fills in."""
    page = browser.get(path).body.decode()
    [inner, *_] = re.findall(rf'action="{re.escape(action)}"[^>]*>(.*?)</form>', page, re.DOTALL)
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', inner))
    return {name: value.replace("&#34;", '"') for name, value in hidden.items()} | fields


PAGES = [
    "/incidents",
    "/incidents?state=open&match=n1",
    "/incidents?state=closed",
    "/incidents/{incident}",
    "/incidents/{incident}/actions/resolve",
    "/incidents/{incident}/actions/approve",
    "/jobs",
    "/jobs?trouble=1",
    "/jobs/{job}",
    "/lemons",
    "/stragglers",
    "/work",
    "/work?state=all",
    "/alerts",
    "/audit",
    "/audit?node=n1&kind=node_state&since=2020-01-01",
    "/control",
]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("who", ["ann", "vic"])
def test_a_page_comes_whole_and_what_a_node_says_is_text(told: Inside, path: str, who: str) -> None:
    path = path.replace("{incident}", incident_of(told)).replace("{job}", quote(JOB))
    answer = Browser(told).log_in(who).get(path)
    if who == "vic" and "/actions/" in path:
        assert answer.status == 403
        return
    assert answer.status == 200, answer.body
    assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS
    page = Outline(answer.body)
    assert [tag for tag, _ in page.tags].count("h1") == 1
    assert "mode recommend" in page.text
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        assert tag != "img"
        assert "style" not in attributes
    assert not {"\x1b", "\u202e"} & set(answer.body.decode())
    named = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(named) == len(set(named)), "an id twice"
    posts = [a for tag, a in page.tags if tag == "form" and a.get("method") == "post"]
    assert who == "ann" or {a["action"] for a in posts} == {"/logout"}  # a viewer is offered nothing they may not do


def test_an_incident_is_told_from_finding_to_decision(told: Inside) -> None:
    text = text_of(Browser(told).log_in("vic"), f"/incidents/{incident_of(told)}")
    assert "row_remap/pending" in text
    assert re.search(r"recommend by rule \S+", text)
    assert re.search(r"\d+ ms|\d+\.\d s", text), "a latency"
    assert '"first_seen":' in text  # raw, as text
    assert "<script>alert(1)</script>" in text
    assert "\\x1b[2J" in text or "\\u001b[2J" in text


def test_a_job_shows_its_ranks_and_one_that_is_gone_does_not(told: Inside) -> None:
    browser = Browser(told).log_in("vic")
    text = text_of(browser, f"/jobs/{quote(JOB)}")
    assert "1 of 16 ranks reporting" in text
    assert "1.25 s a step" in text
    assert "1" in text_of(browser, "/jobs")
    assert browser.get("/jobs/none").status == 404


def test_a_job_shows_its_swaps(told: Inside) -> None:
    text = text_of(Browser(told).log_in("vic"), f"/jobs/{quote(JOB)}")
    newest, older = text.index("16 to 8 ranks"), text.index("ranks 2–3 on n4")
    assert newest < older
    assert re.search(
        r"ranks 2–3 on n4 and 1 more n1 swapped attempt 0, generation 1 0.261 met 0.026, state 0.1 0 memory", text
    )
    assert "another job's" not in text
    assert "<script>alert(1)</script>" in text[newest - 200 : older]


def test_an_incident_goes_through_a_persons_hands(centre: Inside) -> None:
    browser, name = Browser(centre).log_in("ann"), incident_of(centre)
    page = f"/incidents/{name}"
    assert "Awaiting approval" in text_of(browser, page)
    assert "Unassigned" in text_of(browser, page)
    fields = form(browser, page, f"{page}/actions/acknowledge")
    answer = browser.post(f"{page}/actions/acknowledge", fields)
    assert (answer.status, answer.headers["location"]) == (303, f"{page}?done=acknowledge")
    assert "Assigned to ann" in text_of(browser, page)
    note = form(browser, page, f"{page}/actions/note", text=f"the cable {EVIL}")
    for _ in range(2):  # sent twice by a nervous finger
        assert browser.post(f"{page}/actions/note", note).status == 303
    assert text_of(browser, page).count("the cable <script>") == 1  # in the timeline
    resolve = form(browser, f"{page}/actions/resolve", f"{page}/actions/resolve", text="it was the cable")
    late = browser.post(f"{page}/actions/resolve", {**resolve, "seen": fields["seen"]})
    assert late.status == 412  # somebody looked after it meanwhile
    assert "has changed since you read it" in Outline(late.body).text
    assert browser.post(f"{page}/actions/resolve", resolve).status == 303
    assert "resolved by ann: it was the cable" in text_of(browser, page)
    assert name in text_of(browser, "/incidents?state=closed")
    reopen = form(browser, f"{page}/actions/reopen", f"{page}/actions/reopen")
    assert browser.post(f"{page}/actions/reopen", reopen).status == 303
    until(lambda: name in centre.service.engine.snapshot.incidents, "it is open again")


def test_what_waits_says_whom_it_hits_and_is_approved(centre: Inside) -> None:
    browser, name = Browser(centre).log_in("ann"), incident_of(centre)
    text = text_of(browser, "/work")
    assert "Awaiting approval 1" in text
    assert "Node n1" in text
    assert "1 of its 1 node, 16 ranks in all" in text
    ask = f"/incidents/{name}/actions/approve"
    fields = form(browser, ask, ask)
    assert browser.post(ask, {**fields, "what": "something else"}).status == 409
    assert browser.post(ask, fields).status == 303
    until(lambda: centre.service.engine.snapshot.incidents[name].plan, "the plan begins")
    assert "Nothing is awaiting approval" in text_of(browser, "/work")


def test_what_waits_can_be_approved_also_where_nobody_knows_whom_it_hits(
    centre: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError(EVIL)

    browser, ask = Browser(centre).log_in("ann"), f"/incidents/{incident_of(centre)}/actions/approve"
    monkeypatch.setattr(plan_impact, "compute_blast_radius", fails)
    text = text_of(browser, ask)
    assert "Impact unknown: KeyError" in text
    assert "<script>" in text  # as text
    assert browser.post(ask, form(browser, ask, ask)).status == 303


def test_one_of_which_nobody_knows_whom_it_hits_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    centre = in_trouble(tmp_path, Mode.APPROVE)
    try:
        report(centre, "n2", findings=(finding("n2"),), health=Health.UNHEALTHY)
        until(lambda: len(centre.call("GET", "/v1/awaiting", "vic").json()["awaiting"]) == 2, "both wait")

        def fails_for_n1(incident: Incident, *more: Any) -> blast_radius.BlastRadius:
            if incident.node == "n1":
                raise KeyError("n9")
            return blast_radius.compute_blast_radius(incident, *more)

        monkeypatch.setattr(plan_impact, "compute_blast_radius", fails_for_n1)
        text = text_of(Browser(centre).log_in("ann"), "/work")
        assert text.count("Impact unknown: KeyError: 'n9'") == 1
        assert "Node n2 , taken out of service" in text or "Node n2, taken out of service" in text
        assert text.count("Approve…") == 2
        monkeypatch.setattr(plan_impact, "count_job_nodes", lambda _snapshot: {}["none"])
        assert text_of(Browser(centre).log_in("ann"), "/work").count("Impact unknown: KeyError: 'none'") == 2
    finally:
        centre.close()


def test_the_mode_is_set_and_given_back(centre: Inside) -> None:
    browser = Browser(centre).log_in("ann")
    fields = form(browser, "/control", "/control/mode", text="what is this?")
    assert fields["mode"] == "observe"  # the first button on the page stops everything
    assert browser.post("/control/mode", fields).status == 303
    text = text_of(browser, "/")
    assert "mode observe" in text
    assert "what is this?" in text
    assert browser.post("/control/mode", {**fields, "mode": "havoc"}).status == 400
    assert browser.post("/control/mode", {**fields, "mode": ""}).status == 303
    assert "mode approve" in text_of(browser, "/")
    assert browser.post("/control/breaker", fields).headers["location"] == "/control?done=breaker"


@pytest.mark.parametrize("mode", ["observe", "recommend", "approve", "act"])
def test_every_mode_takes_a_reason_and_one_that_stops_automation_shows_it_everywhere(centre: Inside, mode: str) -> None:
    browser, why = Browser(centre).log_in("ann"), f"because {EVIL}"
    csrf = form(browser, "/control", "/control/mode")["csrf"]
    assert browser.post("/control/mode", {"csrf": csrf, "mode": mode, "text": why}).status == 303
    status = centre.call("GET", "/v1/status", "vic").json()
    assert status["mode"] == mode
    assert status["mode_by"].startswith("ann since ")
    assert status["mode_by"].endswith(why)
    for path in ("/control", "/jobs") if mode != "act" else ("/control",):
        assert "because <script>alert(1)</script>" in text_of(browser, path)


def test_a_silence_is_made_and_ended(centre: Inside) -> None:
    browser = Browser(centre).log_in("ann")
    fields = form(browser, "/alerts", "/alerts/silences", match="n1*", kinds="", hours="2", text="")
    refused = browser.post("/alerts/silences", fields)
    assert (refused.status, "n1*" in refused.body.decode()) == (400, True)  # what was filled in is kept
    assert browser.post("/alerts/silences", {**fields, "hours": "9999"}).status == 400
    assert browser.post("/alerts/silences", {**fields, "text": EVIL}).status == 303
    assert "<script>alert(1)</script>" in text_of(browser, "/alerts")
    ended = form(browser, "/alerts", "/alerts/silences/end")
    assert browser.post("/alerts/silences/end", {**ended, "silence": "none/../x"}).status == 404
    assert browser.post("/alerts/silences/end", ended).status == 303
    assert "No silences" in text_of(browser, "/alerts")
    assert browser.post("/alerts/test", {"csrf": fields["csrf"], "receiver": "none"}).status == 404


def test_the_audit_log_is_paged_and_filtered(told: Inside) -> None:
    browser = Browser(told).log_in("vic")
    lines = told.journal.events(0, 1000)
    newest = Outline(browser.get("/audit").body)
    assert lines[-1][1].text.split("<")[0] in newest.text
    some = lines[len(lines) // 2][0]
    older = Outline(browser.get(f"/audit?before={some}").body)
    seqs = [int(n) for n in re.findall(r"data-(\d+)", str([a.get("id") for _, a in older.tags]))]
    assert all(seq < some for seq in seqs)
    kinds = {event.kind for _, event in lines}
    kind = min(kinds)
    shown = Outline(browser.get(f"/audit?kind={kind}").body)
    links = {a["href"] for tag, a in shown.tags if tag == "a" and (a.get("href") or "").startswith("/audit?kind=")}
    assert links == {f"/audit?kind={kind}"}
    assert "No line matches" in text_of(browser, "/audit?actor=nobody")
    assert "No line matches" in text_of(browser, "/audit?until=1999-01-01")
    assert browser.get("/audit?since=yesterday").status == 400
    assert browser.get("/audit?before=x").status == 400


def test_the_end_of_the_chain_is_told(told: Inside) -> None:
    text = text_of(Browser(told).log_in("vic"), "/audit")
    shown = re.search(r"The last line is (\d+).* ([0-9a-f]{64})\b", text)
    assert shown is not None
    with told.journal.engine.connect() as db:
        sealed = db.exec_driver_sql("select hash from audit where seq = ?", (int(shown[1]),)).scalar()
    assert shown[2] == sealed


def test_a_post_mortem_stays_in_its_sandbox(told: Inside) -> None:
    answer = Browser(told).log_in("vic").get(f"/incidents/{incident_of(told)}/postmortem")
    assert answer.status == 200
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["cache-control"] == "no-store"
    assert b"<script>alert" not in answer.body


@pytest.mark.parametrize(
    "path",
    ["/incidents/none", "/incidents/none/postmortem", "/incidents/none/actions/resolve", "/incidents/x/actions/havoc"],
)
def test_what_is_not_there_is_an_error_page(told: Inside, path: str) -> None:
    answer = Browser(told).log_in("ann").get(path)
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/html")


def test_evidence_is_for_operators(told: Inside) -> None:
    path = f"/incidents/{incident_of(told)}/evidence/none"
    assert Browser(told).log_in("vic").get(path).status == 403
    assert Browser(told).log_in("ann").get(path).status == 404


def test_the_stacks_of_all_ranks_are_one_tree_for_operators(centre: Inside) -> None:
    incident = incident_of(centre)
    stacks = [RankStack("train", 1, rank, 1, 1.0, "torch", (f"{EVIL} (train.py:40)",)) for rank in range(2)]
    bundle = EvidenceBundle(version=1, node="n1", boot_id="b", taken_at=2.0, from_at=1.0, stacks=tuple(stacks))
    content = gzip.compress(encode_message(bundle))
    EvidenceStore(centre.journal.engine).keep(EvidenceEntry("o1", incident, "n1", 1.0, len(content)), content)
    text = text_of(Browser(centre).log_in("ann"), f"/incidents/{incident}")
    assert "Stacks of 2 ranks of train, attempt 1: 2 in other" in text
    assert "ranks 0-1" in text
    assert "<script>alert(1)</script>" in text  # as text: a browser would have run it
    assert b"<script>alert" not in Browser(centre).log_in("ann").get(f"/incidents/{incident}").body
    assert "Stacks of" not in text_of(Browser(centre).log_in("vic"), f"/incidents/{incident}")
