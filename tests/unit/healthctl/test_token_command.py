"""Tokens over HTTP to a small controller, and in a real database."""

from __future__ import annotations

import contextlib
import json
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from remediator.model.credentials import Role, TokenList, TokenView
from remediator.store.journal import Journal
from remediator.store.token_store import Tokens
from tests.unit.healthctl.stub_controller import SmallCentre
from vocabulary.messages.wire import NewToken

Run = Callable[..., Result]


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/r.db"
    with contextlib.closing(Journal(url)) as journal:
        journal.prepare()
    return url


@pytest.fixture
def local(healthctl: Run, database: str) -> Run:
    return lambda *arguments: healthctl("token", *arguments, "--store", database)


def whose(database: str, text: str) -> tuple[Role, str] | None:
    with contextlib.closing(Journal(database)) as journal:
        tokens = Tokens(journal.engine)
        tokens.refresh()
        found = tokens.identify(text.strip())
        return None if found is None else (found.role, found.name)


def listed(local: Run, *options: str) -> list[tuple[str, str]]:
    tokens = json.loads(local("list", *options, "-o", "json").stdout)["tokens"]
    return [(token["role"], token["name"]) for token in tokens]


def test_a_token_is_issued_listed_rotated_and_revoked(local: Run, database: str) -> None:
    first = local("issue", "--operator", "ann", "--expires", "30d")
    assert first.exit_code == 0, first.output
    assert whose(database, first.stdout) == (Role.OPERATOR, "ann")
    assert listed(local) == [("operator", "ann")]
    assert first.stdout.strip() not in local("list", "-o", "wide").stdout
    second = local("rotate", "--operator", "ann", "--overlap", "0s")
    assert whose(database, first.stdout) is None
    assert whose(database, second.stdout) == (Role.OPERATOR, "ann")
    assert local("revoke", "--operator", "ann").exit_code == 0
    assert whose(database, second.stdout) is None
    assert listed(local) == []
    assert listed(local, "--all") == [("operator", "ann")] * 2


def test_one_token_is_revoked_by_its_id(local: Run, database: str) -> None:
    kept, gone = (local("issue", "--viewer", name).stdout for name in ("kept", "gone"))
    ids = {t["name"]: t["id"] for t in json.loads(local("list", "-o", "json").stdout)["tokens"]}
    assert local("revoke", ids["gone"]).exit_code == 0
    assert (whose(database, kept), whose(database, gone)) == ((Role.VIEWER, "kept"), None)
    assert local("revoke", "nonsense").exit_code == 3


def test_a_join_secret_says_for_whom_and_how_often(local: Run, database: str) -> None:
    secret = local("join", "gpu-*", "--uses", "2").stdout
    assert whose(database, secret) == (Role.JOIN, "gpu-*")
    (token,) = json.loads(local("list", "-o", "json").stdout)["tokens"]
    assert (token["uses_left"], token["expires_at"] > time.time()) == (2, True)


def test_a_file_is_for_its_owner_and_never_overwritten(local: Run, database: str, tmp_path: Path) -> None:
    out = tmp_path / "token"
    assert local("issue", "--viewer", "page", "--out", str(out)).stdout == ""
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert whose(database, out.read_text()) == (Role.VIEWER, "page")
    before = out.read_text()
    again = local("issue", "--viewer", "page", "--out", str(out))
    assert (again.exit_code, out.read_text()) == (3, before)
    assert whose(database, again.stdout) == (Role.VIEWER, "page"), "it is not lost either"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["issue"], 2),
        (["issue", "--viewer", "a", "--admin", "b"], 2),
        (["issue", "--node", "no name"], 2),
        (["join", "a b"], 2),
        (["revoke"], 2),
        (["revoke", "abc", "--viewer", "a"], 2),
        (["revoke", "--viewer", "nobody"], 3),
        (["rotate", "--viewer", "nobody"], 3),
    ],
)
def test_what_cannot_be_is_said_in_one_line(local: Run, arguments: list[str], code: int) -> None:
    done = local(*arguments)
    assert done.exit_code == code, done.output
    assert done.stderr.startswith("healthctl: ")
    assert done.stderr.count("\n") == 1


def test_no_database_is_made_where_there_is_none(healthctl: Run, tmp_path: Path) -> None:
    done = healthctl("token", "list", "--store", f"sqlite:///{tmp_path}/none.db")
    assert (done.exit_code, "does not exist; run this on" in done.output) == (3, True)
    assert not (tmp_path / "none.db").exists()


@pytest.fixture
def centre() -> Iterator[SmallCentre]:
    found = SmallCentre()
    token = TokenView("abc", Role.VIEWER, "page\x1b[2J", 1.0, "ann")
    found.answers = {"/v1/tokens": TokenList((token,))} | {
        f"POST /v1/tokens{path}": NewToken("ghd_new") for path in ("", "/rotate")
    }
    yield found
    found.close()


def test_over_the_api_the_same_is_sent(centre: SmallCentre, healthctl: Run, token_file: Path) -> None:
    def run(*arguments: str) -> Result:
        return healthctl("token", *arguments, HEALTHCTL_SERVER=centre.url, HEALTHCTL_TOKEN_FILE=str(token_file))

    assert run("issue", "--viewer", "page", "--expires", "1h").stdout == "ghd_new\n"
    assert run("join", "gpu-*", "--replaces").stdout == "ghd_new\n"
    assert run("rotate", "--node", "n1").stdout == "ghd_new\n"
    assert "page\\x1b[2J" in run("list").stdout
    assert run("revoke", "abc").exit_code == 0
    assert centre.heard == [
        ("/v1/tokens", {"role": "viewer", "name": "page", "expires_s": 3600.0, "uses": None, "replaces": False}),
        ("/v1/tokens", {"role": "join", "name": "gpu-*", "expires_s": None, "uses": 1, "replaces": True}),
        ("/v1/tokens/rotate", {"role": "node", "name": "n1", "overlap_s": 86400.0, "expires_s": None}),
        ("/v1/tokens/abc/revoke", None),
    ]


@pytest.mark.parametrize(
    "said", ["ghd_x\x1b]0;pwn\x07\x1b[2J\u202e", "ghd_", "hello", "ghd_a b", "ghd_a\nrm -rf", "ghd_é"]
)
@pytest.mark.parametrize("asked", [["issue", "--viewer", "v"], ["join", "gpu-*"], ["rotate", "--viewer", "v"]])
def test_what_a_server_says_instead_of_a_token_is_neither_shown_nor_kept(
    centre: SmallCentre, healthctl: Run, token_file: Path, tmp_path: Path, said: str, asked: list[str]
) -> None:
    centre.answers |= {f"POST /v1/tokens{path}": NewToken(said) for path in ("", "/rotate")}
    out = tmp_path / "out"
    for where in ([], ["--out", str(out)]):
        done = healthctl("token", *asked, *where, HEALTHCTL_SERVER=centre.url, HEALTHCTL_TOKEN_FILE=str(token_file))
        assert (done.exit_code, done.stdout) == (3, "")
        assert "did not return a token" in done.stderr
        assert done.stderr.removesuffix("\n").isprintable()
    assert not out.exists()


def test_names_of_tokens_that_end_cannot_steer_a_terminal(
    centre: SmallCentre, healthctl: Run, token_file: Path
) -> None:
    done = healthctl("token", "revoke", "abc", HEALTHCTL_SERVER=centre.url, HEALTHCTL_TOKEN_FILE=str(token_file))
    assert done.stdout == "revoked abc, viewer page\\x1b[2J\n"


def test_an_id_that_no_token_has_cannot_steer_a_terminal(centre: SmallCentre, healthctl: Run, token_file: Path) -> None:
    done = healthctl("token", "revoke", "\x1b[2J", HEALTHCTL_SERVER=centre.url, HEALTHCTL_TOKEN_FILE=str(token_file))
    assert (done.exit_code, "\x1b" in done.output) == (3, False)
