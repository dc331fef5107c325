"""A rank between two generations of its process group, against the launcher's real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from healthd.launcher.membership import Member
from healthd.launcher.rendezvous import Rendezvous as Server
from healthd.trainer.adapters.group_sockets import open_sockets
from healthd.trainer.adapters.pytorch_generations import _Generations
from healthd.trainer.adapters.pytorch_ranks import Ranks
from healthd.trainer.exchange import ExchangeLimits
from healthd.trainer.rendezvous import MEMBER, Rendezvous

pytestmark = pytest.mark.torch
DEADLINE_S = 10.0
Join = Callable[[int], Rendezvous]


@pytest.fixture
def join() -> Iterator[Join]:
    server = Server([Member(number, f"n{number}") for number in range(4)], world=2)
    made: list[Rendezvous] = []

    def join(number: int) -> Rendezvous:
        member = Rendezvous.from_env(1000 + number, server.environ | {MEMBER: str(number)})
        assert member is not None
        made.append(member)
        return member

    yield join
    for member in made:
        member.close()
    server.close()
    for thread in threading.enumerate():
        if thread.name in ("healthd-rendezvous", "healthd-free-rank"):
            thread.join(DEADLINE_S)


def test_a_rank_that_is_not_free_yet_hears_the_launcher(join: Join) -> None:
    first, *others = (join(number) for number in range(4))
    generations = _Generations(first, served_port=1)
    for each in (first, *others):
        each.arrive()
    generation = first.wait_newer(-1, DEADLINE_S)
    assert generation is not None
    with generations._lock:
        generations._entered = (generation, frozenset(open_sockets()))  # and it does not get free of it
    others[0].close()
    assert first.wait_newer(0, DEADLINE_S) is not None
    others[1].close()
    newest = first.wait_newer(1, DEADLINE_S)
    assert newest is not None
    assert [peer.member for peer in newest.peers] == [0, 3]
    generations._end_group()


@pytest.mark.usefixtures("group")
def test_connecting_has_a_shorter_limit_than_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    connect, limits = dist.new_group, []

    def noted(**options: Any) -> Any:
        limits.append(options["timeout"])
        return connect(**options)

    monkeypatch.setattr(dist, "new_group", noted)
    group = Ranks(ExchangeLimits(300.0, connect_seconds=6.0)).group
    limits.append(group._get_backend(torch.device("cpu")).options._timeout)
    assert [limit.total_seconds() for limit in limits] == [6.0, 300.0]
