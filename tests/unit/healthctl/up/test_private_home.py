"""The folder of a cluster of one holds an admin's token: what somebody else prepared is not trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from healthctl.exit_codes import Failure
from healthctl.single_node.home_directory import HomeDirectory, ServicePorts
from healthctl.single_node.private_files import explain_untrusted_directory, write_new
from healthctl.single_node.token_provisioning import provision_tokens


@pytest.fixture
def home(tmp_path: Path) -> HomeDirectory:
    return HomeDirectory(tmp_path / "state")


def modes(home: HomeDirectory) -> dict[str, int]:
    return {
        str(each.relative_to(home.path)): stat.S_IMODE(each.lstat().st_mode) for each in sorted(home.path.rglob("*"))
    }


def test_everything_is_for_its_owner_whatever_the_umask(home: HomeDirectory) -> None:
    before = os.umask(0)
    try:
        assert home.prepare() is False
        with home.take():
            provision_tokens(home, "n1")
            home.configure("n1", ServicePorts(1, 2), accept_injected=False)
            found = modes(home)
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert {"remediator.db", "remediator.yaml", "healthd.yaml", "up.lock", "tokens/admin", "tokens/node"} <= set(found)
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
    assert home.prepare() is True


@pytest.mark.parametrize("part", ["", "tokens"])
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o777])
def test_a_folder_that_others_may_enter_is_refused_and_left_as_it_is(home: HomeDirectory, part: str, mode: int) -> None:
    home.prepare()
    (home.path / part).chmod(mode)
    with pytest.raises(Failure, match=rf"{mode:04o}.*chmod 700"):
        home.prepare()
    assert stat.S_IMODE((home.path / part).stat().st_mode) == mode


@pytest.mark.parametrize("part", ["state", "state/tokens"])
def test_a_link_is_no_folder_of_ours(tmp_path: Path, home: HomeDirectory, part: str) -> None:
    home.prepare()
    (tmp_path / part).rename(tmp_path / "elsewhere")
    (tmp_path / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Failure, match="symbolic link"):
        home.prepare()


def test_what_belongs_to_somebody_else_is_named_wherever_it_lies(home: HomeDirectory) -> None:
    home.prepare()
    (home.path / "tokens" / "admin.new").touch()
    assert explain_untrusted_directory(home.path, os.geteuid()) == ""
    assert f"belongs to user {os.geteuid()}" in explain_untrusted_directory(home.path, os.geteuid() + 1)
    if os.geteuid() == 0:
        os.chown(home.path / "tokens" / "admin.new", 65534, 65534)
        with pytest.raises(Failure, match=r"admin\.new: belongs to user 65534"):
            home.prepare()


def test_a_file_that_lies_in_the_way_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    victim, token = tmp_path / "victim", tmp_path / "token"
    victim.write_text("theirs")
    token.symlink_to(victim)
    write_new(token, "ours")
    assert (victim.read_text(), token.read_text()) == ("theirs", "ours")
    token.unlink()
    token.touch(mode=0o666)
    with token.open() as still_open:  # by whoever put it there
        write_new(token, "newer")
        assert still_open.read() == ""
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_an_old_lock_that_is_a_link_is_not_followed(tmp_path: Path, home: HomeDirectory) -> None:
    home.prepare()
    (home.path / "up.lock").symlink_to(tmp_path / "made")
    with pytest.raises(Failure, match=r"up\.lock"):
        home.take()
    assert not (tmp_path / "made").exists()
