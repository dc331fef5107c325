"""Lemons, stragglers, alerts, the mode and the breaker: what people see, what programs get, what is sent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import Result

from remediator.model.views import IncidentList, IncidentView, StatusView
from remediator.model.views_actions import ActionList, AwaitingList, AwaitingView, BreakerView
from remediator.model.views_alerts import AlertList, AlertTested, AlertView, SilenceList, SilenceView
from remediator.model.views_detectors import LemonList, LemonView, StragglerList, StragglerView
from tests.unit.healthctl.stub_controller import SmallCentre

Run = Callable[..., Result]
AT = 1_700_000_000.0
EVIL = "evil \x1b[2J[red]name\u202e\n"

LEMONS = LemonList(
    (
        LemonView(
            "gpu-7", 0.93, "confirmed", 5, 720.0, "5 failures, 0.4 expected", "replace it", AT, AT, ("train",), "inc-1"
        ),
        LemonView("gpu-9", 0.41, "watched", 2, 100.5, EVIL, "watch", AT, AT),
    )
)
STRAGGLERS = StragglerList(
    (
        StragglerView("train", 2, "compute", "rank 4 is slow by itself", AT, AT, "gpu-4", 4, (4,), 1, 0.21, 0.97),
        StragglerView("other", 1, "data", "the loader, on every rank", AT, AT, ranks=tuple(range(9))),
    )
)
ALERTS = AlertList(
    (
        AlertView("al-1", "pager", "page", "sent", "GPU lost", AT, AT, "gpu-7", "inc-1", sent_at=AT + 1, attempts=1),
        AlertView("al-2", "chat", "ticket", "abandoned", EVIL, AT, AT, "gpu-9", attempts=9, error="500: no"),
    )
)
SILENCE = SilenceView("si-1", "r7-*", "*", AT, AT + 3600, "ann", "moving")
BREAKER = BreakerView(
    open=True,
    at=AT + 9,
    limits=("2 of at most 2 isolated", "6 of at most 6 in an hour"),
    since=AT,
    why="9 in a minute",
    incident="inc-1",
)
STATUS = StatusView(
    "demo", "0.1.0", "observe", 4, "default@1", AT, 9, {"healthy": 9}, {"healthy": 9}, 1, 2, 1, 0, "ok",
    mode_by="ann since 2023-11-14 22:13:20Z: the network is worked on", leader="a",
)  # fmt: skip
INCIDENTS = IncidentList(
    (IncidentView("inc-1", "gpu-7", "open", EVIL, AT), IncidentView("inc-0", "gpu-1", "closed", "over", AT, AT + 1))
)


@pytest.fixture
def centre() -> Iterator[SmallCentre]:
    found = SmallCentre()
    found.answers = {
        "/v1/lemons": LEMONS,
        "/v1/stragglers": STRAGGLERS,
        "/v1/alerts": ALERTS,
        "/v1/alerts/silences": SilenceList((SILENCE,)),
        "POST /v1/alerts/silences": SILENCE,
        "POST /v1/alerts/test": AlertTested("pager", taken=False, words="401: no such key"),
        "/v1/breaker": BREAKER,
        "/v1/status": STATUS,
        "/v1/incidents": INCIDENTS,
        "/v1/awaiting": AwaitingList((AwaitingView("inc-1", "gpu-7", "a1", "drain", AT, "GPU lost", (("drain",),)),)),
        "/v1/actions": ActionList(()),
    }
    yield found
    found.close()


@pytest.fixture
def run(centre: SmallCentre, healthctl: Run, token_file: Path) -> Run:
    def invoke(*arguments: str) -> Result:
        return healthctl(*arguments, HEALTHCTL_SERVER=centre.url, HEALTHCTL_TOKEN_FILE=str(token_file))

    return invoke


PAGES = {
    "lemons": (["lemons", "-o", "wide"], 0),
    "stragglers": (["stragglers"], 0),
    "alerts": (["alerts", "-o", "wide"], 1),
    "silences": (["alerts", "silences"], 0),
    "alerts_test": (["alerts", "test", "pager"], 1),
    "breaker": (["breaker"], 1),
    "mode": (["mode"], 0),
    "mode_preview": (["mode", "act", "--dry-run"], 0),
}


@pytest.mark.parametrize("page", PAGES)
def test_each_page_for_people(run: Run, golden: Callable[[str, str], None], page: str) -> None:
    arguments, code = PAGES[page]
    done = run(*arguments)
    assert done.exit_code == code, done.output
    assert all(c.isprintable() or c == "\n" for c in done.stdout)
    golden(f"healthctl/{page}.txt", done.stdout)


@pytest.mark.parametrize(
    ("command", "view"), [("lemons", LEMONS), ("stragglers", STRAGGLERS), ("alerts", ALERTS), ("breaker", BREAKER)]
)
def test_programs_get_the_document_of_the_api(run: Run, command: str, view: msgspec.Struct) -> None:
    document = json.loads(msgspec.json.encode(view))
    assert json.loads(run(command, "-o", "json").stdout) == document
    assert yaml.safe_load(run(command, "-o", "yaml").stdout) == document


def test_where_there_is_nothing_it_says_so(run: Run, centre: SmallCentre) -> None:
    centre.answers |= {
        "/v1/lemons": LemonList(()),
        "/v1/stragglers": StragglerList(()),
        "/v1/alerts": AlertList(()),
        "/v1/alerts/silences": SilenceList(()),
    }
    for arguments, words in {
        ("lemons",): "no lemon",
        ("stragglers",): "no straggler",
        ("alerts",): "no notification sent",
        ("alerts", "silences"): "no active silence",
    }.items():
        done = run(*arguments)
        assert (done.exit_code, words in done.stdout) == (0, True), done.output


def test_alerts_are_chosen_by_state_and_node(run: Run) -> None:
    assert "al-2" not in run("alerts", "list", "-o", "wide", "--state", "sent").stdout
    chosen = run("alerts", "--node", "gpu-7", "-o", "json")
    assert ([a["id"] for a in json.loads(chosen.stdout)["alerts"]], chosen.exit_code) == (["al-1"], 0)
    assert "no matching alert" in run("alerts", "--node", "cpu-*").stdout


def test_a_silence_says_whom_how_long_and_why(run: Run, centre: SmallCentre) -> None:
    before = time.time()
    assert run("alerts", "silence", "moving", "--node", "r7-*", "--for", "1h").exit_code == 0
    ((path, wish),) = centre.heard
    assert path == "/v1/alerts/silences"
    assert isinstance(wish, dict)
    assert (wish["match"], wish["kinds"], wish["text"]) == ("r7-*", "*", "moving")
    assert before + 3600 <= wish["until"] <= time.time() + 3600
    assert run("alerts", "end", "si-1", "done").exit_code == 0
    assert centre.heard[-1] == ("/v1/alerts/silences/si-1/end", {"text": "done"})


def test_a_silence_of_everything_must_be_said(run: Run, centre: SmallCentre) -> None:
    done = run("alerts", "silence", "moving", "--for", "1h")
    assert (done.exit_code, "--node '*' silences everything" in done.output) == (2, True)
    assert not centre.heard


def test_the_mode_is_lowered_at_once_and_raised_after_a_yes(run: Run, centre: SmallCentre) -> None:
    centre.answers["/v1/status"] = msgspec.structs.replace(STATUS, mode="approve")
    assert run("mode", "observe", "too much noise").exit_code == 0
    assert centre.heard == [("/v1/mode", {"mode": "observe", "text": "too much noise"})]
    for raised in ("act", "config"):
        refused = run("mode", raised)
        assert (refused.exit_code, "--yes" in refused.output) == (2, True), raised
    assert len(centre.heard) == 1
    assert run("mode", "act", "--yes").exit_code == 0
    assert run("mode", "config", "--yes").exit_code == 0
    assert [body for _, body in centre.heard[1:]] == [{"mode": "act", "text": ""}, {"mode": "", "text": ""}]


def test_a_dry_run_changes_no_mode(run: Run, centre: SmallCentre) -> None:
    assert run("mode", "act", "--dry-run", "--yes").exit_code == 0
    centre.answers["/v1/status"] = msgspec.structs.replace(STATUS, mode="act")
    assert run("mode", "observe", "--dry-run").exit_code == 0
    assert not centre.heard


def test_the_breaker_is_closed_after_a_yes(run: Run, centre: SmallCentre) -> None:
    assert run("breaker", "reset", "looked").exit_code == 2
    assert run("breaker", "reset", "looked", "--dry-run").exit_code == 0
    assert not centre.heard
    assert run("breaker", "reset", "looked", "--yes").exit_code == 0
    assert centre.heard == [("/v1/breaker/reset", {"text": "looked"})]
    centre.answers["/v1/breaker"] = BreakerView(open=False, at=AT, limits=())
    assert "already closed" in run("breaker", "reset").stdout
    assert run("breaker").exit_code == 0
    assert len(centre.heard) == 1
