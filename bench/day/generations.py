"""A rank under `healthctl launch --swap`, without torch: it waits for a generation, trains in it, and goes on in the next one."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import closing

from bench.day.collective import Collective, StuckError
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.rank_replacement import NextGeneration
from healthd.trainer.rendezvous_client import Generation, RendezvousClient, RendezvousError

NOTICE_S = 30.0  # after a collective has failed, for the launcher to see why


class GenerationSwap:
    """The guard's `RankReplacer`, in one generation."""

    enabled = True
    noticed = False

    def __init__(self, rendezvous: RendezvousClient, generation: Generation) -> None:
        self._rendezvous, self._generation = rendezvous, generation
        self.evict = rendezvous.evict
        self.leave = functools.partial(rendezvous.leave, replace=True)

    def has_rank_on(self, nodes: Collection[str]) -> bool:
        """Whether a rank of this generation is on one of these nodes."""
        return any(peer.node in nodes for peer in self._generation.peers)

    def take(self) -> None:
        """The job of the day does not grow: there is no request to pause."""

    @property
    def over(self) -> bool:
        """Whether a newer generation is there."""
        return self._rendezvous.is_over(self._generation.number)

    @property
    def can_swap(self) -> bool:
        """Whether a spare takes the place of a rank that leaves."""
        return self.over or self._rendezvous.can_swap


class GenerationRank:
    """What a rank has in one generation: its number, its connections, and the guard's view of the launcher."""

    def __init__(self, rendezvous: RendezvousClient, generation: Generation, together: Collective) -> None:
        self.generation, self.together = generation, together
        self.world = len(generation.peers)
        self.rank = find_rank(rendezvous, generation)
        self.swap = GenerationSwap(rendezvous, generation)
        self._rendezvous = rendezvous

    def entered(self) -> None:
        """All ranks have connected."""
        self._rendezvous.send("entered", generation=self.generation.number)

    def loaded(self, begin: int, finished: int) -> None:
        """The state before step `begin` is there; `finished` was the last step that this rank had."""
        self._rendezvous.send("loaded", generation=self.generation.number, begin=begin, finished=finished)

    def advanced(self, step: int) -> None:
        """A step was finished in this generation."""
        self._rendezvous.send("advanced", generation=self.generation.number, step=step, source="the ranks' memory")


def find_rank(rendezvous: RendezvousClient, generation: Generation) -> int:
    """The rank that this process holds in a generation."""
    return next(rank for rank, peer in enumerate(generation.peers) if peer.member == rendezvous.member)


class Generations:
    """Trains in each generation in turn. The server socket is made before the arrival: the others may connect to it as soon as there is a generation."""

    def __init__(self, timeout_s: float, environ: Mapping[str, str] | None = None) -> None:
        """Args: `timeout_s`: after which a stuck collective is given up; `environ`: for tests.

        Raises:
            ValueError: the launcher replaces no ranks.
        """
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._timeout_s = timeout_s
        found = RendezvousClient.from_env(self._server.getsockname()[1], environ)
        if found is None:
            raise ValueError("no launcher that replaces ranks: start this with healthctl launch --swap")
        self._rendezvous = found
        self._together: tuple[int, Collective] | None = None
        self._rendezvous.on_change(self._free)

    def run(self, train: Callable[[GenerationRank], None]) -> None:
        """To the end of the job; raises Leave as `train` does, and StuckError where no newer generation comes."""
        self._rendezvous.arrive()
        number = -1
        while True:
            try:
                generation = self._rendezvous.wait_newer(number)
            except RendezvousError:
                raise Leave(ExitCode.DONE if number < 0 else ExitCode.RELAUNCH) from None
            if generation is None:
                return
            number = generation.number
            try:
                self._enter(generation, train)
                self._rendezvous.send("done", generation=number)
            except NextGeneration:
                self._must_follow(number, Leave(ExitCode.RELAUNCH))
            except StuckError as error:
                self._must_follow(number, error)
            except SystemExit as leave:
                self._rendezvous.leave(leave.code if isinstance(leave.code, int) else 1, "it ends on its own")
                raise

    def close(self) -> None:
        """Leave the launcher and the other ranks."""
        self._rendezvous.close()
        self._server.close()

    def _enter(self, generation: Generation, train: Callable[[GenerationRank], None]) -> None:
        rank, first = find_rank(self._rendezvous, generation), generation.peers[0]
        self._rendezvous.send("entering", generation=generation.number)
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(len(generation.peers))})
        together = Collective(
            (first.host, first.port),
            rank,
            len(generation.peers),
            self._timeout_s,
            server=self._server,
            generation=generation.number,
            over=lambda: self._rendezvous.is_over(generation.number) or self._rendezvous.broken,
        )
        with closing(together):
            self._together = (generation.number, together)
            self._free()  # it may have become too late meanwhile
            try:
                train(GenerationRank(self._rendezvous, generation, together))
            finally:
                self._together = None

    def _must_follow(self, number: int, error: StuckError | Leave) -> None:
        try:
            self._rendezvous.wait_newer(number, NOTICE_S)
        except RendezvousError as why:
            code = error.code if isinstance(error, Leave) and isinstance(error.code, int) else 1
            self._rendezvous.leave(code, f"{error} ({why})")
            raise error from why

    def _free(self) -> None:
        """In the thread that hears the launcher: whatever waits for a lost rank fails now."""
        held = self._together
        if held is not None and (held[0] < self._rendezvous.number or self._rendezvous.broken):
            held[1].hang_up()
