from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.cli import shell_completion
from healthctl.commands.completion_command import SHELLS
from healthctl.main import COMMANDS
from remediator.model.views import IncidentList, IncidentView, NodeList, NodeView
from tests.unit.healthctl.stub_controller import SmallCentre

Run = Callable[..., Result]
HEAVY = {"torch", "requests", "sqlalchemy", "numpy", "rich", "yaml", "prometheus_client"}


def completed(words: str, env: dict[str, str] | None = None) -> list[str]:
    """What bash would be offered after these words; the last one is not finished."""
    argv = [sys.executable, "-m", "healthctl"]
    parts = words.split(" ")
    asked = {"_HEALTHCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(parts) - 1)}
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEALTHCTL_")}
    done = subprocess.run(
        argv, env=clean | (env or {}) | asked, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(healthctl: Run, shell: str) -> None:
    done = healthctl("completion", shell)
    assert done.exit_code == 0
    assert "_HEALTHCTL_COMPLETE" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, timeout=60)


def test_the_shell_is_known_by_its_variable_or_asked_for(healthctl: Run) -> None:
    assert healthctl("completion", SHELL="/usr/bin/fish").stdout == healthctl("completion", "fish").stdout
    done = healthctl("completion", SHELL="/bin/dash")
    assert (done.exit_code, "name the shell" in done.output) == (2, True)


def test_commands_are_completed_without_loading_them() -> None:
    assert completed("healthctl in") == [name for name in COMMANDS if name.startswith("in")]
    assert completed("healthctl analyze l") == ["lemons"]
    script = (
        "import sys, json\nfrom healthctl.main import main\n"
        "try: main()\nexcept SystemExit: pass\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    env = os.environ | {"_HEALTHCTL_COMPLETE": "bash_complete", "COMP_WORDS": "healthctl ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert not HEAVY & set(json.loads(done.stderr))


GROUPS = {
    "nodes": "--state",
    "incidents": "--limit",
    "actions": "--state",
    "jobs": "--limit",
    "alerts": "--limit",
    "token": "--all",
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_that_lists_by_default_offers_its_commands_and_the_options_of_its_list(group: str) -> None:
    assert "list" in completed(f"healthctl {group} ")
    assert completed(f"healthctl {group} li") == ["list"]
    assert GROUPS[group] in completed(f"healthctl {group} --")
    assert "quarantined" in completed("healthctl nodes --state ")


@pytest.mark.parametrize(
    "command", ["xid parse", "replay", "preflight report", "preflight admit", "playbook lint", "analyze hang"]
)
def test_a_file_is_left_to_the_shell(command: str) -> None:
    asked = {
        "_HEALTHCTL_COMPLETE": "zsh_complete",
        "COMP_WORDS": f"healthctl {command} /etc/ho",
        "COMP_CWORD": str(1 + len(command.split())),
    }
    argv = [sys.executable, "-m", "healthctl"]
    done = subprocess.run(argv, env=os.environ | asked, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split("\n")[:2] in (["file", "/etc/ho"], ["dir", "/etc/ho"])


def test_fish_shows_a_meaning_whole(healthctl: Run) -> None:
    script = healthctl("completion", "fish").stdout
    assert 'string split --max 1 ","' in script
    if not shutil.which("fish"):
        return
    words = "function healthctl; echo plain,nodes\\tstate, health, GPUs; end; function env; healthctl; end\n"
    done = subprocess.run(
        ["fish", "--no-config"],
        input=f"{script}{words}complete --do-complete 'healthctl no'",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "nodes\tstate, health, GPUs\n"


# What a shell, or the terminal below it, would act upon.
EVIL = (
    "1;touch${IFS}x;",
    "$(id)",
    "`id`",
    "a b",
    "a|b",
    "a&b",
    "a>b",
    "'",
    '"',
    "\\",
    "*",
    "~",
    "!1",
    "\n2",
    "\x1b]0;t\x07",
    "\u202e",
    "é",
)


@pytest.fixture
def centre(monkeypatch: pytest.MonkeyPatch, token_file: Path) -> Iterator[SmallCentre]:
    found = SmallCentre()
    found.answers = {
        "/v1/nodes": NodeList(
            tuple(
                NodeView(name, "healthy", "healthy", 0.0, "", 0.0)
                for name in ("gpu-1", "gpu-10", *(f"gpu-{end}" for end in EVIL), "x")
            )
        ),
        "/v1/incidents": IncidentList(
            tuple(
                IncidentView(each, "n", "open", "bad\x1b[2J", 0.0)
                for each in ("inc-1", *(f"inc-{end}" for end in EVIL))
            )
        ),
    }
    monkeypatch.setenv("HEALTHCTL_SERVER", found.url)
    monkeypatch.setenv("HEALTHCTL_TOKEN_FILE", str(token_file))
    yield found
    found.close()


def ask(incomplete: str, what: Callable[..., list[object]] = shell_completion.node_names) -> list[object]:
    command = click.Command("show", params=[click.Argument(["name"])])
    return what(click.Context(command), command.params[0], incomplete)


def test_names_of_nodes_come_from_the_server(centre: SmallCentre) -> None:
    assert ask("gpu") == ["gpu-1", "gpu-10"]
    assert ask("") == ["gpu-1", "gpu-10", "x"]
    assert "after=gpt~" in centre.asked[0], "only what stands from there on"


def test_incidents_come_with_their_titles_and_nothing_steers_the_terminal(centre: SmallCentre) -> None:
    (only,) = ask("inc", shell_completion.incident_ids)
    assert (only.value, only.help) == ("inc-1", "bad\\x1b[2J")


def test_a_token_never_follows_where_an_answer_leads(monkeypatch: pytest.MonkeyPatch, centre: SmallCentre) -> None:
    front = SmallCentre()
    front.leads_to = centre.url
    monkeypatch.setenv("HEALTHCTL_SERVER", front.url)
    try:
        assert ask("gpu") == []
    finally:
        front.close()
    assert (len(front.asked), centre.asked) == (1, [])


def test_an_answer_without_an_end_is_not_read_to_its_end(centre: SmallCentre) -> None:
    title = "x" * shell_completion.ANSWER_BYTES_MAX
    centre.answers["/v1/incidents"] = IncidentList((IncidentView("inc-1", "n", "open", title, 0.0),))
    assert ask("inc", shell_completion.incident_ids) == []


LETTERS = "-.0189AZ_az"
names = st.text(LETTERS, min_size=1, max_size=8)


@given(names, st.text(LETTERS, max_size=4), names)
def test_the_server_is_asked_from_just_before_the_first_name_that_fits(begin: str, rest: str, other: str) -> None:
    before = unquote(shell_completion._list_offset_before(begin))
    assert before < begin + rest, "every name that fits comes after it"
    assert other < before or other >= begin or other.startswith(begin), "and none that does not fit lies between"


@pytest.mark.parametrize("server", ["", "ftp://x", "http://127.0.0.1:9", "http://[", "no url"])
def test_a_server_that_is_away_completes_nothing_and_says_nothing(
    server: str, monkeypatch: pytest.MonkeyPatch, token_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEALTHCTL_TOKEN_FILE", str(token_file))
    monkeypatch.setenv("HEALTHCTL_SERVER", server)
    assert ask("gpu") == []
    assert capfd.readouterr() == ("", "")


def test_a_server_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, token_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HEALTHCTL_SERVER", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("HEALTHCTL_TOKEN_FILE", str(token_file))
        assert ask("gpu") == []


def test_an_answer_that_is_none_completes_nothing(centre: SmallCentre) -> None:
    centre.answers.clear()
    assert ask("gpu") == []
