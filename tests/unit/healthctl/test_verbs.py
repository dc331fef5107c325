"""What people do from the command line: names as they are given, what is asked before it is done, and how much is shown."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.api_client.resource_names import complete_incident_id, suggest_names
from healthctl.exit_codes import Failure
from healthctl.pages.blast_radius import format_ranges
from remediator.model.views import EventList, IncidentList, IncidentView
from remediator.model.views_audit import AuditView
from tests.unit.healthctl.conftest import POSTED, POSTMORTEM, Remediator
from tests.unit.healthctl.stub_controller import SmallCentre

Run = Callable[..., Result]

ASKED_FIRST = {
    "cordon": (["nodes", "cordon", "node1", "a fan"], "/v1/nodes/node1/cordon"),
    "uncordon": (["nodes", "uncordon", "node1"], "/v1/nodes/node1/uncordon"),
    "retire": (["nodes", "retire", "node1", "sold"], "/v1/nodes/node1/retire"),
    "approve": (["incidents", "approve", "inc-2"], "/v1/incidents/inc-2/approve"),
    "approve action": (["actions", "approve", "inc-2.d1"], "/v1/incidents/inc-2/approve"),
}
AT_ONCE = {
    "hold": (["nodes", "hold", "node1", "operator hold"], "/v1/nodes/node1/hold"),
    "cancel": (["actions", "cancel", "inc-1.d1.s0.0.drain.node1"], "/v1/actions/inc-1.d1.s0.0.drain.node1/cancel"),
    "ack": (["incidents", "ack", "inc-1"], "/v1/incidents/inc-1/acknowledge"),
    "resolve": (["incidents", "resolve", "inc-1"], "/v1/incidents/inc-1/resolve"),
}


@pytest.mark.parametrize("verb", ASKED_FIRST)
def test_what_moves_nodes_and_work_is_asked_first(asking: Run, verb: str) -> None:
    command, path = ASKED_FIRST[verb]
    refused = asking(*command)
    assert (refused.exit_code, refused.stdout, POSTED) == (2, "", [])
    assert "but there is no terminal; use --yes" in refused.stderr
    looked = asking(*command, "--dry-run")
    assert (looked.exit_code, POSTED) == (0, [])
    assert "automation may isolate 1 more" in looked.stdout
    assert "6 of 6 isolations in an hour" in looked.stdout
    if "node1" in command:
        assert "rank 0 of 4, step 118" in looked.stdout
    both = asking(*command, "--dry-run", "--yes")
    assert (both.exit_code, POSTED) == (0, []), "a look stays a look"
    done = asking(*command, "--yes")
    assert done.exit_code == 0, done.stderr
    assert [posted for posted, _ in POSTED] == [path]


@pytest.mark.parametrize("verb", AT_ONCE)
def test_what_only_stops_or_says_something_is_done_at_once(asking: Run, verb: str) -> None:
    command, path = AT_ONCE[verb]
    assert asking(*command).exit_code == 0
    assert [posted for posted, _ in POSTED] == [path]


@pytest.mark.parametrize(
    ("answer", "code", "posted"), [(b"y\n", 0, 1), (b"n\n", 3, 0), (b"\n", 3, 0), (b"\x04", 3, 0), (b"\x03y\n", 130, 0)]
)
def test_at_a_terminal_a_person_is_asked(
    serve: Callable[..., str], token_file: Path, answer: bytes, code: int, posted: int
) -> None:
    POSTED.clear()
    server = ("--server", serve(Remediator), "--token-file", str(token_file))
    command = [sys.executable, "-m", "healthctl", "nodes", "cordon", "node1", "a fan", *server]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm", "NO_PROXY": "*"}
    ) as process:
        try:
            os.close(theirs)
            seen = b""
            while b"cordon node1? [y/N]" not in seen:
                assert select.select([ours], [], [], 60)[0], seen
                seen += os.read(ours, 4096)
            if answer.startswith(b"\x03"):  # this terminal is nobody's, and makes no signal of it
                process.send_signal(signal.SIGINT)
            os.write(ours, answer.removeprefix(b"\x03"))
            assert process.wait(60) == code
            assert len(POSTED) == posted
            assert "rank 0 of 4" in seen.decode()
        finally:
            process.kill()
            os.close(ours)


@pytest.mark.parametrize("given", ["inc-1", "1"])
def test_the_first_letters_of_an_incident_are_enough(asking: Run, given: str) -> None:
    assert asking("incidents", "show", given).stdout == asking("incidents", "show", "inc-1").stdout


def listed(*ids: str) -> IncidentList:
    return IncidentList(tuple(IncidentView(each, "n", "open", "t", 0.0) for each in ids))


def test_what_fits_several_or_none_is_said() -> None:
    known = listed("inc-aa00000001", "inc-aa00000002", "inc-bb00000003")
    assert complete_incident_id("bb", known) == "inc-bb00000003"
    assert complete_incident_id("inc-aa00000001", known) == "inc-aa00000001"
    assert complete_incident_id("inc-old", known) == "inc-old", "the list need not reach so far"
    with pytest.raises(Failure, match="is ambiguous: inc-aa00000001, inc-aa00000002; give a longer prefix") as several:
        complete_incident_id("inc-a", known)
    assert several.value.exit_code == 2
    with pytest.raises(Failure, match="did you mean inc-bb00000003"):
        complete_incident_id("inc-bb0000003", known)
    assert complete_incident_id("", known) == ""


def test_who_mistypes_a_name_is_told_the_nearest(asking: Run) -> None:
    for command in (["nodes", "show", "nod1"], ["nodes", "hold", "nod1", "why"], ["nodes", "cordon", "nod1", "why"]):
        done = asking(*command)
        assert done.exit_code == 3
        assert "did you mean node1" in done.stderr
    assert "did you mean llama/7" in asking("jobs", "show", "lama/7").stderr
    assert "did you mean inc-2.d1" in asking("actions", "approve", "inc-2.d2").stderr
    assert suggest_names("gpu-1", ["cpu-77", "else"]) == ""


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["nodes", "--state", "healthy"], ["node2"]),
        (["nodes", "--node", "*1", "--node", "x"], ["node1"]),
        (["nodes", "--health", "unhealthy", "--state", "healthy"], []),
        (["nodes", "--limit", "1"], ["node1"]),
        (["gpus", "--health", "unknown"], ["node2"]),
        (["gpus", "--job", "llama*"], ["node1"]),
        (["gpus", "--node", "node?", "--limit", "1"], ["node1"]),
        (["incidents", "--node", "cluster:*"], ["cluster:rack7"]),
        (["incidents", "--state", "acting", "--state", "closed"], ["node1"]),
        (["incidents", "--state", "open"], ["cluster:rack7", "node1"]),
        (["incidents", "--state", "closed"], []),
        (["actions", "--node", "node2"], []),
    ],
)
def test_what_is_asked_for_is_what_is_listed(asking: Run, arguments: list[str], kept: list[str]) -> None:
    done = asking(*arguments, "-o", "json")
    assert done.exit_code == 0, done.stderr
    (rows,) = [rows for rows in json.loads(done.stdout).values() if isinstance(rows, list)]
    assert [row["node"] for row in rows] == kept
    shown = asking(*arguments).stdout
    assert all(name in shown for name in kept)
    assert kept or "no matching" in shown


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ([], [1, 2, 3]),
        (["--limit", "2"], [2, 3]),
        (["--limit", "1", "--node", "node*"], [3]),
        (["--kind", "decision"], [1, 2, 3]),
        (["--after", "0", "--limit", "2"], [2, 3]),
        (["--after", "1"], [2, 3]),
        (["--since", "2h"], []),
        (["--since", "2023-11-14T22:13:22Z"], [2, 3]),
        (["--since", "2023-11-14T22:13:22Z", "--limit", "1"], [3]),
        (["--since", "2023-11-14T22:13:22Z", "--node", "node1"], [2, 3]),
        (["--until", "2023-11-14T22:13:22Z"], [1]),
        (["--after", "0", "--until", "2023-11-14T22:13:23Z"], [1, 2]),
        (["--after", "1", "--since", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:23Z"], [2]),
        (["--actor", "engine"], [1, 2, 3]),
        (["--actor", "ann", "--actor", "eng*"], [1, 2, 3]),
        (["--actor", "ann"], []),
        (["--node", "node1", "--kind", "dec*"], [1, 2, 3]),
        (["--incident", "1"], []),
        (["--kind", "action"], []),
    ],
)
def test_what_is_asked_of_the_audit_log(asking: Run, arguments: list[str], kept: list[int]) -> None:
    done = asking("events", *arguments, "-o", "json")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == kept
    assert asking("events", "--since", "soon").exit_code == 2
    assert asking("events", "--follow", "--until", "1h").exit_code == 2


WHOLE, SOME = "inc-0123456789ab", "inc-0123"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], {}),
        (["--actor", "ann", "--kind", "mode"], {"actor": "ann", "kind": "mode"}),
        (["--actor", "an*"], {}),
        (["--incident", WHOLE, "--since", "1970-01-02"], {"incident": WHOLE, "since": "86400.0"}),
        (["--incident", SOME], {}),
        (["--incident", WHOLE, "--incident", SOME], {}),
        (["--node", "n1", "--until", "1970-01-02"], {"node": "n1", "until": "86400.0"}),
        (["--since", "1970-01-02"], None),
        (["--after", "0", "--node", "n1"], None),
    ],
)
def test_the_server_looks_for_what_it_can_look_for(
    healthctl: Run, token_file: Path, arguments: list[str], asked: dict[str, str] | None
) -> None:
    """`asked`: what the log is asked backwards; None: it is read from there on."""
    centre = SmallCentre()
    centre.answers = {"/v1/audit": AuditView(0.0, (), 0, 0, ""), "/v1/events": EventList(())}
    try:
        done = healthctl("events", *arguments, "--server", centre.url, "--token-file", str(token_file))
    finally:
        centre.close()
    assert done.exit_code == 0, done.stderr
    (only,) = map(urlsplit, centre.asked)
    query = dict(parse_qsl(only.query))
    assert only.path == ("/v1/events" if asked is None else "/v1/audit")
    assert asked is None or query == asked | {"limit": "1000"}


@given(st.sets(st.integers(0, 60)))
def test_spans_name_each_number_once(numbers: set[int]) -> None:
    named: list[int] = []
    for part in format_ranges(numbers).split(", ") if numbers else []:
        low, _, high = part.partition("-")
        named += range(int(low), int(high or low) + 1)
    assert named == sorted(numbers)


@pytest.mark.parametrize("output", ["yaml", "wide", "table"])
def test_every_page_has_every_form(asking: Run, output: str) -> None:
    for page in (
        ["status"],
        ["nodes"],
        ["gpus"],
        ["jobs"],
        ["incidents"],
        ["actions"],
        ["actions", "awaiting"],
        ["events"],
    ):
        done = asking(*page, "-o", output)
        assert done.exit_code in (0, 1), done.stderr
        assert done.stdout.startswith("---\n") == (output == "yaml")
        assert all(line.isprintable() for line in done.stdout.splitlines())


@pytest.mark.parametrize("form", ["md", "json"])
def test_a_post_mortem_is_safe_to_look_at_and_whole_in_a_file(asking: Run, tmp_path: Path, form: str) -> None:
    told = asking("incidents", "postmortem", "inc-1", "--format", form)
    assert told.exit_code == 0, told.stderr
    assert all(line.isprintable() for line in told.stdout.split("\n"))
    assert len(told.stdout.split("\n")) == len(POSTMORTEM.split("\n"))
    assert form != "json" or json.loads(told.stdout) == json.loads(POSTMORTEM)
    kept = tmp_path / f"told.{form}"
    assert asking("incidents", "postmortem", "inc-1", "--out", str(kept)).exit_code == 0
    assert kept.read_text() == POSTMORTEM


def test_stacks_are_one_tree_and_safe_to_look_at(asking: Run) -> None:
    shown = asking("incidents", "stacks", "inc-1").stdout.splitlines()
    assert shown[0].startswith("8 ranks of llama, attempt 7, read ")
    assert shown[0].endswith(": 7 in collective, 1 in data")
    assert shown[3:] == ["    rank 3, in data", "      \\x9b2J (dataloader.py:7)"]
    assert asking("incidents", "stacks", "inc-2").stdout == "no stacks received\n"


def test_who_gives_a_node_back_sees_what_that_ends(asking: Run) -> None:
    done = asking("nodes", "uncordon", "node1", "--dry-run")
    assert "the scheduler places work at once; no preflight runs first" in done.stdout
    assert "its incident inc-1" in done.stdout
    assert "xid/79 (fatal)" in done.stdout
    assert "its incident" not in asking("nodes", "uncordon", "node2", "--dry-run").stdout, "nobody holds it"
