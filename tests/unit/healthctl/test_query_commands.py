from __future__ import annotations

import json
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

PAGES = {
    "status": ["status"],
    "nodes": ["nodes", "list"],
    "node": ["nodes", "show", "node1"],
    "versions": ["nodes", "list", "--versions"],
    "incidents": ["incidents", "list"],
    "incident": ["incidents", "show", "inc-1"],
    "events": ["events", "--after", "0"],
    "history": ["nodes", "history", "node1"],
    "gpus": ["gpus"],
    "jobs": ["jobs", "list"],
    "job": ["jobs", "show", "llama/7"],
    "actions": ["actions", "list"],
    "awaiting": ["actions", "awaiting"],
    "placement": ["advise", "placement", "--nodes", "1"],
}


@pytest.mark.parametrize("page", PAGES)
def test_each_page_for_people(asking: Run, golden: Callable[[str, str], None], page: str) -> None:
    done = asking(*PAGES[page])
    assert done.exit_code == (page == "status"), done.stderr
    golden(f"healthctl/{page}.txt", done.stdout)
    assert all(line.isprintable() for line in done.stdout.splitlines())


@pytest.mark.parametrize("page", PAGES)
def test_each_page_for_programs_is_what_the_server_said(asking: Run, page: str) -> None:
    done = asking(*PAGES[page], "-o", "json")
    assert done.exit_code == (page == "status"), done.stderr
    for text in done.stdout.splitlines() if page == "events" else [done.stdout]:
        assert isinstance(json.loads(text), dict)


def test_programs_get_the_incidents_of_the_status_and_what_comes_next(asking: Run) -> None:
    told = json.loads(asking("status", "-o", "json").stdout)
    assert told["mode"] == "act"
    assert [each["id"] for each in told["incidents"]] == ["inc-2", "inc-1"]
    assert [each["what"] for each in told["awaiting"]] == ["inc-2.d1"]
    assert "healthctl actions approve inc-2.d1" in told["next"]["inc-2"]


@pytest.mark.parametrize("group", ["nodes", "incidents", "actions", "jobs"])
def test_a_group_lists_when_nothing_else_is_asked(asking: Run, group: str) -> None:
    assert asking(group).stdout == asking(group, "list").stdout
    assert asking(group, "-o", "json").stdout == asking(group, "list", "-o", "json").stdout
    assert "Commands:" in asking(group, "--help").stdout


def test_events_come_in_portions_and_after(asking: Run) -> None:
    seqs = [json.loads(line)["seq"] for line in asking("events", "-o", "json").stdout.splitlines()]
    assert seqs == [1, 2, 3]
    seqs = [json.loads(line)["seq"] for line in asking("events", "--after", "2", "-o", "json").stdout.splitlines()]
    assert seqs == [3]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["nodes", "show", "node9"], "404: nothing at /v1/nodes/node9"), (["incidents", "show", "../nodes"], "404")],
)
def test_what_does_not_exist_is_said(asking: Run, arguments: list[str], says: str) -> None:
    done = asking(*arguments)
    assert (done.exit_code, done.stdout) == (3, "")
    assert says in done.stderr


def test_a_node_name_that_is_none_is_wrong_usage(asking: Run) -> None:
    assert asking("nodes", "show", "no node").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("hold", "node1", "a fan is changed"),
            "node1: held, automation does not act on it; undo: healthctl nodes release node1",
        ),
        (
            ("hold", "node1", "a fan is changed", "--for", "2h"),
            "node1: held, automation does not act on it; undo: healthctl nodes release node1",
        ),
        (("release", "node1"), "node1: operator hold released; now quarantined; held by gpu-healthd"),
        (("retire", "node1", "sold", "--yes"), "node1: retired; undo: healthctl nodes unretire node1"),
        (
            ("unretire", "node1", "bought back"),
            "node1: returned to the cluster; now quarantined; held by gpu-healthd",
        ),
    ],
)
def test_people_say_what_they_want_of_a_node(asking: Run, arguments: tuple[str, ...], says: str) -> None:
    done = asking("nodes", *arguments)
    assert (done.exit_code, done.stdout.strip()) == (0, says), done.stderr


def test_what_cannot_be_said_of_a_node(asking: Run) -> None:
    refused = asking("nodes", "hold", "node1", "it is retired")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "409: it is retired" in refused.stderr
    for wrong in (
        ("hold", "node1"),
        ("retire", "node1"),
        ("hold", "no node", "x"),
        ("hold", "node1", "x", "--for", "soon"),
    ):
        assert asking("nodes", *wrong).exit_code == 2


def test_a_wrong_token_is_refused_with_what_to_do(healthctl: Run, asking: Run, token_file: Path) -> None:
    token_file.write_text("wrong")
    done = asking("status")
    assert done.exit_code == 3
    assert "401: this token is not known; ask an operator" in done.stderr


@pytest.mark.parametrize("text", ["", "two words", "tök", "a\nb", "\x1b[2J"])
def test_a_token_file_that_holds_none_is_named(asking: Run, token_file: Path, text: str) -> None:
    token_file.write_text(text)
    done = asking("status")
    assert done.exit_code == 3
    assert f"{token_file}: contains no token" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no server given; use --server URL or set HEALTHCTL_SERVER"),
        (["--server", "http://localhost:1"], "no token given"),
        (["--server", "http://localhost:1", "--token-file", "/nowhere/token"], "/nowhere/token: cannot read the token"),
    ],
)
def test_what_is_missing_is_no_answer(healthctl: Run, arguments: list[str], says: str) -> None:
    done = healthctl("status", *arguments)
    assert done.exit_code == 3
    assert says in done.stderr


@pytest.mark.parametrize("url", ["localhost:1", "ftp://localhost", "http://", "nonsense"])
def test_an_address_that_is_none_is_wrong_usage(healthctl: Run, token_file: Path, url: str) -> None:
    done = healthctl("status", "--server", url, "--token-file", str(token_file))
    assert done.exit_code == 2
    assert "not a server address" in done.stderr


def test_nobody_there_is_one_line(healthctl: Run, token_file: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = healthctl("status", "--server", url, "--token-file", str(token_file))
    assert done.exit_code == 3
    assert (
        done.stderr == f"healthctl: {url}: no answer: Connection refused; check that the controller is running there\n"
    )


class Stranger(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/v1/overview": b'{"cluster": 5}', "/v1/nodes": b"<html>", "/v1/incidents": b""}[
            self.path.partition("?")[0]
        ]
        self.send_response(502 if self.path.startswith("/v1/incidents") else 200, "Bad \x1b[31mgateway")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status"], "$.cluster"),
        (["nodes", "list"], "JSON is malformed"),
        (["incidents", "list"], r"502: Bad \x1b[31mgateway"),
    ],
)
def test_an_answer_that_makes_no_sense_is_said_and_safe(
    healthctl: Run, serve: Callable[..., str], token_file: Path, arguments: list[str], says: str
) -> None:
    done = healthctl(*arguments, "--server", serve(Stranger), "--token-file", str(token_file))
    assert (done.exit_code, done.stdout) == (3, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_token_that_others_may_read_is_named_and_used(asking: Run, token_file: Path) -> None:
    assert asking("nodes", "list", "-o", "json").stderr == ""
    token_file.chmod(0o644)
    careless = asking("nodes", "list", "-o", "json")
    assert "other users can read this secret (0644): chmod 0600" in careless.stderr
    assert careless.stdout == asking("nodes", "list", "-o", "json").stdout
