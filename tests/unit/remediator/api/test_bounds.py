"""What nodes and people may send: bounds on every number, text and list, and no NUL, on both databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from msgspec import inspect

from remediator.api.endpoint import Endpoint
from remediator.api.route_table import ENDPOINTS
from remediator.web.page_routes import PAGES
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding
from vocabulary.finding import Finding
from vocabulary.identity import Component
from vocabulary.messages.message_bounds import ACTIVE_MAX, RANKS_MAX, ComponentBounds, FindingBounds, OrderUpdateBounds
from vocabulary.messages.wire import Gpu, RankStatus, Report
from vocabulary.order import OrderUpdate

GOOD: dict[str, Any] = {
    "version": 1, "node": "n1", "boot_id": "b", "agent": "a", "seq": 1, "sent_at": 1.0, "ttl_s": 30.0, "health": "healthy",
}  # fmt: skip
FINDING: dict[str, Any] = msgspec.to_builtins(finding("n1"))
RANK = {"job": "j", "attempt": 0, "rank": 0, "world": 1, "pid": 1, "step": 1, "phase": "step", "at": 1.0}
GPU = {"index": 0, "uuid": "GPU-1", "pci": "0000:01:00.0"}
LONG = "x" * 1_000_000


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def centre(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    server = request.getfixturevalue("postgresql_server") if request.param == "postgresql" else None
    found = Inside(tmp_path_factory.mktemp("centre"), database=server.database() if server else "")
    yield found
    found.close()


def report(**changes: Any) -> bytes:
    return msgspec.json.encode(GOOD | changes)


def changed(**fields: Any) -> dict[str, Any]:
    return {"active": [FINDING | fields]}


ABSURD: list[tuple[dict[str, Any], str]] = [
    *(({"ttl_s": value}, "ttl_s") for value in (1e300, 1e9, -5, 0)),
    *(({name: -1}, name) for name in ("seq", "version", "sent_at")),
    *(({"seq": value}, "seq") for value in (2**63, 2**70)),
    *(({"sent_at": value}, "sent_at") for value in (1e12, 1e300, -1e300)),
    *(({name: LONG}, name) for name in ("boot_id", "agent")),
    *((changed(**{name: LONG}), name) for name in ("id", "check", "code", "summary", "origin", "boot_id", "cleared_by")),
    *((changed(**{name: value}), name) for name in ("first_seen", "last_seen", "cleared_at") for value in (-1, 1e12)),
    *((changed(count=value), "count") for value in (-1, 2**63)),
    *((changed(component={"kind": "gpu", name: LONG}), f"component.{name}") for name in ("name", "pci")),
    (changed(component={"kind": "gpu", "index": 2**63}), "component.index"),
    *((changed(evidence=value), "evidence") for value in ({"k": LONG}, {LONG: 1}, {"k": 2**70}, {f"{n}": n for n in range(65)})),
    ({"changes": [{"seq": 2**63, "finding": FINDING}]}, "seq"),
    ({"changes": [{"seq": 1, "finding": FINDING | {"code": LONG}}]}, "code"),
    *(({"ranks": [RANK | {name: LONG}]}, name) for name in ("job", "phase", "section", "role", "gpu")),
    *(({"ranks": [RANK | {name: 2**63}]}, name) for name in ("attempt", "rank", "world", "pid", "step", "data_group")),
    *(({"ranks": [RANK | {name: 1e300}]}, name) for name in ("at", "step_seconds", "step_median")),
    ({"ranks": [RANK | {"sections": {LONG: 1}}]}, "sections"),
    ({"ranks": [RANK | {"sections": {f"{n}": n for n in range(33)}}]}, "sections"),
    ({"ranks": [RANK | {"windows": [[2**63, 1, 1, 1.0]]}]}, "windows"),
    ({"ranks": [RANK | {"windows": [[0, 1, 1, 1.0]] * 65}]}, "windows"),
    *(({"gpus": [GPU | {name: LONG}]}, name) for name in ("uuid", "pci", "name", "serial")),
    ({"gpus": [GPU | {"index": 2**63}]}, "index"),
    ({"gpus": [GPU] * 257}, "gpus"),
    *(({"versions": {name: LONG}}, name) for name in ("healthd", "driver", "kernel", "image", "bios")),
    ({"versions": {"vbios": ["v"] * 257}}, "vbios"),
    (changed(summary="a\0b"), "NUL"),
    ({"ranks": [RANK | {"job": "a\0b"}]}, "NUL"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "names"), ABSURD, ids=lambda value: str(value)[:40])
def test_an_absurd_report_is_refused_and_the_answer_names_the_field(
    shared: Inside, changes: dict[str, Any], names: str
) -> None:
    answer = shared.call("POST", "/v1/nodes/n1/report", "n1", report(**changes))
    assert answer.status == 400
    assert names in answer.json()["error"]
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    ("name", "most"), [("changes", 500), ("active", ACTIVE_MAX), ("ranks", RANKS_MAX)]
)  # fmt: skip
def test_a_report_holds_only_so_many(shared: Inside, name: str, most: int) -> None:
    one: Any = {"changes": {"seq": 1, "finding": FINDING}, "active": FINDING, "ranks": RANK}[name]
    assert shared.call("POST", "/v1/nodes/n1/report", "n1", report(**{name: [one] * (most + 1)})).status == 413


def test_the_answer_tells_the_value_and_the_bound(shared: Inside) -> None:
    answer = shared.call("POST", "/v1/nodes/n1/report", "n1", report(ttl_s=1e300)).json()
    assert answer["error"] == "Report: Expected `float` <= 3600.0 - at `$.ttl_s`; the node sent 1e300"
    for rest in (b" garbage", b'"x": ' + b"[" * 5000):
        torn = shared.call("POST", "/v1/nodes/n1/report", "n1", b'{"ttl_s": 1e300, ' + rest)
        assert (torn.status, torn.json()["error"]) == (400, "Report: Expected `float` <= 3600.0 - at `$.ttl_s`")
    one = shared.call("POST", "/v1/nodes/n1/report", "n1", report(**changed(code=LONG))).json()
    assert one["finding"] == FINDING["id"]
    assert one["error"] == f"finding '{FINDING['id']}': Expected `str` of length <= 128 - at `$.code`"


@pytest.mark.parametrize(
    ("changes", "names"),
    [({"detail": LONG[:20_000]}, "detail"), ({"at": 1e300}, "at"), ({"data": {"step": 2**70}}, "data"), ({"detail": "\0"}, "NUL")],
)  # fmt: skip
def test_an_absurd_answer_to_an_order_is_refused(shared: Inside, changes: dict[str, Any], names: str) -> None:
    body = {"id": "o", "state": "running", "at": 1.0} | changes
    answer = shared.call("POST", "/v1/nodes/n1/orders/o", "n1", body)
    assert answer.status == 400
    assert names in answer.json()["error"]


@pytest.mark.parametrize(
    ("kind", "twin"), [(Finding, FindingBounds), (Component, ComponentBounds), (OrderUpdate, OrderUpdateBounds)]
)
def test_every_field_of_a_stored_message_has_a_bound(kind: type, twin: type) -> None:
    assert kind.__struct_fields__ == twin.__struct_fields__  # type: ignore[attr-defined]  # both are structs
    assert _unbounded(inspect.type_info(twin)) == set()


@pytest.mark.parametrize("kind", [RankStatus, Gpu])
def test_every_field_of_a_message_has_a_bound(kind: type) -> None:
    assert _unbounded(inspect.type_info(kind)) == set()


def test_every_field_of_a_report_has_a_bound() -> None:
    """Findings have theirs in the twin; changes, active findings and ranks are counted by the handler."""
    loose = _unbounded(inspect.type_info(Report))
    assert {path for path in loose if ".finding." not in path and not path.startswith(".active")} == {
        ".changes",
        ".ranks",
    }


def _unbounded(info: inspect.Type, path: str = "") -> set[str]:
    """Fields in which a text, a number or a list of any size fits."""
    match info:
        case inspect.StrType():
            return set() if info.max_length is not None or info.pattern else {path}
        case inspect.IntType():
            return set() if info.le is not None and info.ge is not None else {path}
        case inspect.FloatType():
            return (
                set()
                if (info.le is not None and info.ge is not None) or "evidence" in path or "data" in path
                else {path}
            )
        case inspect.VarTupleType():
            return (set() if info.max_length is not None else {path}) | _unbounded(info.item_type, path)
        case inspect.DictType():
            keys = _unbounded(info.key_type, f"{path}.key")
            return (set() if info.max_length is not None else {path}) | keys | _unbounded(info.value_type, path)
        case inspect.UnionType():
            return set().union(*(_unbounded(each, path) for each in info.types))
        case inspect.StructType():
            return set().union(*(_unbounded(f.type, f"{path}.{f.name}") for f in info.fields))
    return set()


def paths_with(word: str) -> Iterator[tuple[str, str]]:
    """Every GET and POST of the API and the pages: `word` as each part of the path, and as each part of the query."""
    for each in (*ENDPOINTS, *PAGES):
        parameters = re.findall(r"\{\w+(?::path)?\}", each.path)
        for place in parameters:
            path = re.sub(r"\{\w+(?::path)?\}", "x", each.path.replace(place, word))
            yield each.method, path
        if isinstance(each, Endpoint) and each.answer != "text/event-stream":
            bare = re.sub(r"\{node\}", "n1", each.path)
            bare = re.sub(r"\{\w+(?::path)?\}", "x", bare)
            for query in each.query:
                yield each.method, f"{bare}?{query.name}={word}"
    for page in ("/search?q=", "/incidents?state=", "/nodes?q=", "/audit?node=", "/login?next="):
        yield "GET", page + word


@pytest.mark.parametrize("word", ["%00", "a%00b"])
def test_a_nul_in_a_path_or_a_query_is_the_callers_mistake(centre: Inside, word: str) -> None:
    session = {"accept": "text/html"}
    for method, path in paths_with(word):
        for who in ("root", "n1"):
            answer = centre.call(method, path, who, b"{}" if method == "POST" else b"", session)
            assert 400 <= answer.status < 500, (method, path, who, answer)


@pytest.mark.parametrize("value", ["9" * 30, "-" + "9" * 30, "1e300", "nan", "\ud800", "x" * 5000, "%"])
def test_an_odd_word_of_a_query_never_breaks_anything(centre: Inside, value: str) -> None:
    for each in ENDPOINTS:
        if each.method == "GET" and each.answer != "text/event-stream" and "wait_s" not in [q.name for q in each.query]:
            bare = re.sub(r"\{\w+(?::path)?\}", "x", each.path.replace("{node}", "n1"))
            for query in each.query:
                words = urlencode({query.name: value}, errors="surrogatepass")
                answer = centre.call("GET", f"{bare}?{words}", "root")
                assert answer.status < 500, (each.path, query.name, answer)


def test_a_nul_in_what_a_person_says_is_their_mistake(centre: Inside) -> None:
    for path in (
        "/v1/mode",
        "/v1/nodes/n1/hold",
        "/v1/tokens",
        "/v1/alerts/silences",
        "/v1/incidents/x/notes",
        "/v1/enrol",
    ):
        who = "join" if path.endswith("enrol") else "root"
        answer = centre.call("POST", path, who, b'{"text": "a\\u0000b", "name": "a\\u0000"}')
        assert (answer.status, "NUL" in answer.json()["error"]) == (400, True), path


def test_what_is_within_its_bounds_is_taken_and_kept(centre: Inside) -> None:
    """A backslash before the letters is no NUL; and the largest of everything is stored and shown."""
    largest = {
        "check": "c" * 64, "code": "d" * 128, "summary": "\\u0000" + "s" * 1994, "origin": "o" * 255, "count": 2**63 - 1,
        "last_seen": 253_402_300_799.0, "evidence": {f"k{n}": "v" * 2000 for n in range(64)},
        "component": {"kind": "gpu", "name": "n" * 255, "pci": "p" * 64, "index": 2**63 - 1},
    }  # fmt: skip
    rank = RANK | {"job": "j" * 255, "step": 2**63 - 1, "windows": [[2**63 - 1, 1, 1, 1.0]], "at": 2.0**63}
    one = FINDING | largest
    body = report(ttl_s=3600, changes=[{"seq": 2**63 - 1, "finding": one}], active=[one], ranks=[rank], seq=2**63 - 1)
    answer = centre.call("POST", "/v1/nodes/n1/report", "n1", body)
    assert answer.status == 200, answer
    for path in (
        "/v1/nodes/n1",
        "/v1/incidents",
        "/v1/jobs",
        f"/v1/jobs/{'j' * 255}",
        "/v1/stragglers",
        "/v1/overview",
    ):
        assert centre.call("GET", path, "vic").status == 200, path
    shown = centre.call("GET", "/v1/nodes/n1", "vic").json()
    assert shown["findings"][0]["summary"] == one["summary"]
