"""`remediator token`: issued, listed, rotated, revoked, and every change in the audit log."""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from remediator.main import main
from remediator.model.credentials import Identity, Role
from remediator.store import audit_log
from remediator.store.journal import Journal
from remediator.store.token_store import EnrolmentRefused, Tokens


def run(tmp_path: Path, *arguments: str) -> str:
    (tmp_path / "r.yaml").write_text(f"database: sqlite:///{tmp_path}/r.db")
    done = CliRunner().invoke(main, ["token", *arguments, "--config", str(tmp_path / "r.yaml")])
    assert done.exit_code == 0, done.output
    return done.output.strip()


def refused(tmp_path: Path, *arguments: str) -> str:
    done = CliRunner().invoke(main, ["token", *arguments, "--config", str(tmp_path / "r.yaml")])
    assert done.exit_code != 0
    return done.output


def whose(tmp_path: Path, *tokens: str) -> list[tuple[Role, str] | None]:
    with contextlib.closing(Journal(f"sqlite:///{tmp_path}/r.db")) as journal:
        known = Tokens(journal.engine)
        known.refresh()
        found: list[Identity | None] = [known.identify(token) for token in tokens]
    return [(f.role, f.name) if f else None for f in found]


def test_each_role_by_its_option(tmp_path: Path) -> None:
    tokens = [run(tmp_path, "issue", f"--{role}", "x") for role in ("viewer", "operator", "admin", "node")]
    roles = [Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.NODE]
    assert whose(tmp_path, *tokens) == [(role, "x") for role in roles]
    assert whose(tmp_path, "", "ghd_x", tokens[0] + "x", tokens[0][:-1]) == [None] * 4
    assert (tmp_path / "r.db").read_bytes().find(tokens[0].encode()) < 0


def test_two_tokens_of_a_name_are_good_for_the_overlap(tmp_path: Path) -> None:
    old = run(tmp_path, "issue", "--node", "n1")
    new = run(tmp_path, "rotate", "--node", "n1", "--overlap", "1h")
    newest = run(tmp_path, "rotate", "--node", "n1", "--overlap", "0s")
    assert whose(tmp_path, old, new, newest) == [None, None, (Role.NODE, "n1")]
    assert "no valid token" in refused(tmp_path, "rotate", "--node", "n2")
    between = run(tmp_path, "rotate", "--node", "n1")
    assert whose(tmp_path, newest, between) == [(Role.NODE, "n1")] * 2
    assert run(tmp_path, "list").count("valid") == 2


def test_a_token_is_revoked_by_its_id_or_with_all_of_its_name(tmp_path: Path) -> None:
    one, two, other = (run(tmp_path, "issue", "--operator", name) for name in ("ann", "ann", "bob"))
    token_id = run(tmp_path, "list").split()[0]
    assert "revoked" in run(tmp_path, "revoke", token_id)
    run(tmp_path, "revoke", "--operator", "ann")
    assert whose(tmp_path, one, two, other) == [None, None, (Role.OPERATOR, "bob")]
    assert "no such token" in refused(tmp_path, "revoke", "123456789012")
    assert "exactly one" in refused(tmp_path, "issue", "--operator", "a", "--node", "b")
    assert run(tmp_path, "list", "--all").count("revoked") == 2


def test_a_token_ends_when_it_was_said_to(tmp_path: Path) -> None:
    token = run(tmp_path, "issue", "--viewer", "x", "--expires", "30d")
    with contextlib.closing(Journal(f"sqlite:///{tmp_path}/r.db")) as journal:
        for days, good in ((29, True), (31, False)):
            tokens = Tokens(journal.engine, lambda days=days: time.time() + days * 86400)  # type: ignore[misc]  # a default binds
            tokens.refresh()
            assert (tokens.identify(token) is not None) is good


def test_a_rotated_token_ends_when_the_one_before_would_have(tmp_path: Path) -> None:
    run(tmp_path, "issue", "--viewer", "x", "--expires", "30d")
    until = run(tmp_path, "list").partition("until ")[2]
    run(tmp_path, "rotate", "--viewer", "x")
    assert run(tmp_path, "list").count(until) == 1
    run(tmp_path, "rotate", "--viewer", "x", "--expires", "60d", "--overlap", "0s")
    (line,) = run(tmp_path, "list").splitlines()
    assert until not in line
    run(tmp_path, "issue", "--viewer", "y")
    run(tmp_path, "rotate", "--viewer", "y", "--overlap", "0s")
    assert run(tmp_path, "list").splitlines()[-1].endswith("valid")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("issue", "--node", "n1", "--uses", "2"), "'uses' applies only to join secrets"),
        (("issue", "--node", "n1", "--replaces"), "'replaces' applies only to join secrets"),
        (("issue", "--node", "a b"), "a b"),
        (("issue", "--join", "gpu 7"), "not a pattern for node names"),
        (("issue", "--join", ""), "not a pattern for node names"),
        (("issue", "--viewer", "x", "--expires", "0s"), "give 1s to"),
        (("issue", "--viewer", "x", "--expires", "999999d"), "give 1s to"),
        (("issue", "--viewer", "x", "--expires", "soon"), "is not a duration"),
        (("issue",), "exactly one of --"),
        (("rotate", "--node", "n1", "--overlap", "soon"), "is not a duration"),
        (("revoke",), "an ID or exactly one of"),
        (("revoke", "123456789012", "--node", "n1"), "not both"),
    ],
)
def test_what_makes_no_sense_is_said_and_changes_nothing(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    run(tmp_path, "list")
    assert says in refused(tmp_path, *arguments)
    assert run(tmp_path, "list", "--all") == ""


def test_every_change_is_in_the_chained_audit_log_with_its_actor(tmp_path: Path) -> None:
    run(tmp_path, "issue", "--node", "n1")
    run(tmp_path, "rotate", "--node", "n1")
    run(tmp_path, "revoke", "--node", "n1")
    with contextlib.closing(Journal(f"sqlite:///{tmp_path}/r.db")) as journal:
        events = [event for _, event in journal.events(0, 10)]
        with journal.engine.connect() as db:
            assert not audit_log.verify_chain(db).broken
    assert [e.kind for e in events] == ["token_issued", "token_rotated", "token_revoked", "token_revoked"]
    assert all("(on " in e.actor and e.node == "n1" for e in events)


def test_a_join_secret_ends_also_where_nobody_said_so(database: str) -> None:
    with contextlib.closing(Journal(database)) as journal:
        journal.prepare()
        tokens = Tokens(journal.engine)
        tokens.issue(Role.JOIN, "gpu-*", 1.0, uses=1)
        tokens.issue(Role.NODE, "n1", 1.0)
        assert [token.expires_at for token in tokens.all()] in ([86401.0, None], [None, 86401.0])


def test_a_node_whose_answer_was_lost_asks_again(database: str) -> None:
    mine = hashlib.sha256(b"made by the node").hexdigest()
    with contextlib.closing(Journal(database)) as journal:
        journal.prepare()
        tokens = Tokens(journal.engine, lambda: 5.0)
        secret = tokens.issue(Role.JOIN, "gpu-*", 1.0, uses=1)
        for _ in range(2):  # the second time the secret is used up
            assert tokens.enrol(secret, "gpu-1", 2.0, mine=mine) == ""
        found = tokens.identify("made by the node")
        assert found is not None
        assert (found.role, found.name) == (Role.NODE, "gpu-1")
        assert tokens.identify(secret) is not None  # or it could not ask again
        for node, digest in (("gpu-2", mine), ("gpu-1", hashlib.sha256(b"another").hexdigest())):
            with pytest.raises(EnrolmentRefused):
                tokens.enrol(secret, node, 3.0, mine=digest)
        tokens.revoke(4.0, role=Role.NODE, name="gpu-1")
        with pytest.raises(EnrolmentRefused, match="revoked"):
            tokens.enrol(secret, "gpu-1", 5.0, mine=mine)
        kinds = [event.kind for _, event in journal.events(0, 10)]
        assert kinds == ["token_issued", "node_enrolled", "token_revoked"]


def test_a_join_secret_serves_so_many_nodes_of_its_pattern_once_each(database: str) -> None:
    with contextlib.closing(Journal(database)) as journal:
        journal.prepare()
        tokens = Tokens(journal.engine)
        secret = tokens.issue(Role.JOIN, "gpu-*", 1.0, uses=2, expires_at=100.0)
        mine = tokens.enrol(secret, "gpu-1", 2.0)
        found = tokens.identify(mine)
        assert found is not None
        assert (found.role, found.name) == (Role.NODE, "gpu-1")
        for node, at, why in (("gpu-1", 3.0, "already"), ("cpu-1", 3.0, "for nodes gpu-"), ("gpu-2", 101.0, "expired")):
            with pytest.raises(EnrolmentRefused, match=why):
                tokens.enrol(secret, node, at)
        tokens.enrol(secret, "gpu-2", 4.0)
        with pytest.raises(EnrolmentRefused, match="used up"):
            tokens.enrol(secret, "gpu-3", 5.0)
        again = tokens.issue(Role.JOIN, "*", 6.0, uses=1, replaces=True)
        newer = tokens.enrol(again, "gpu-1", 7.0)
        assert tokens.identify(mine) is None
        assert tokens.identify(newer) is not None
        with pytest.raises(EnrolmentRefused):
            tokens.enrol(newer, "gpu-9", 8.0)  # a node's token is no join secret
