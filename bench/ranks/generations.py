"""A rank under `healthctl launch --swap`, without torch: it waits for a generation, trains in it, and goes on in the next one.

It does what `healthd.trainer.adapters.pytorch_generations` does for torch.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import closing

from bench.ranks.collective import Collective, StuckError
from healthd.trainer.beacons.beacon import withdraw_page
from healthd.trainer.beacons.rank_environment import RankEnvironment, read_environment
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.rank_replacement import NextGeneration
from healthd.trainer.rendezvous_client import SPARE, Generation, RendezvousClient, RendezvousError
from healthd.trainer.rendezvous_replacer import RendezvousReplacer

LOOPBACK = "127.0.0.1"
NOTICE_S = 30.0  # after a collective has failed, for the launcher to see why


class GenerationRank:
    """What a rank has in one generation: its number, its connections, and the guard's view of the launcher."""

    def __init__(self, rendezvous: RendezvousClient, generation: Generation, together: Collective) -> None:
        self.generation, self.together = generation, together
        self.world = len(generation.peers)
        self.rank = find_rank(rendezvous, generation)
        self.member = rendezvous.member
        self.swap = RendezvousReplacer(rendezvous, generation)
        self._rendezvous = rendezvous

    def entered(self) -> None:
        """All ranks have connected."""
        self._rendezvous.send("entered", generation=self.generation.number)

    def loaded(self, begin: int, finished: int) -> None:
        """The state before step `begin` is there; `finished` was the last step that this rank had."""
        self._rendezvous.send("loaded", generation=self.generation.number, begin=begin, finished=finished)

    def advanced(self, step: int, source: str = "the ranks' memory") -> None:
        """A step was finished in this generation; its state came from `source`."""
        self._rendezvous.send("advanced", generation=self.generation.number, step=step, source=source)

    def allow_resize(self) -> None:
        """Any rank's state is all that a job of another size needs."""
        self._rendezvous.send("fixed", generation=self.generation.number, why="")


def find_rank(rendezvous: RendezvousClient, generation: Generation) -> int:
    """The rank that this process holds in a generation."""
    return next(rank for rank, peer in enumerate(generation.peers) if peer.member == rendezvous.member)


class Generations:
    """Trains in each generation in turn. The server socket is made before the arrival: the others may connect to it as soon as there is a generation."""

    def __init__(self, timeout_s: float, environ: Mapping[str, str] | None = None, host: str = LOOPBACK) -> None:
        """Prepare; `run` arrives.

        Args:
            timeout_s: after which a stuck collective is given up.
            environ: where the launcher's variables are; None: this process's own.
            host: this machine's address, at which the other ranks reach it.

        Raises:
            ValueError: the launcher replaces no ranks.
        """
        self._server = socket.create_server((host, 0), backlog=128)
        self._timeout_s = timeout_s
        found = RendezvousClient.from_env(self._server.getsockname()[1], environ)
        if found is None:
            raise ValueError("no launcher that replaces ranks: start this with healthctl launch --swap")
        self._rendezvous = found
        self._together: tuple[int, Collective] | None = None
        self._page: RankEnvironment | None = None  # of the newest rank of this process
        self._rendezvous.on_change(self._free)

    def run(self, train: Callable[[GenerationRank], None]) -> None:
        """To the end of the job; raises Leave as `train` does, and StuckError where no newer generation comes."""
        self._rendezvous.arrive()
        number, done = -1, False
        while (generation := self._next(number, done=done)) is not None:
            number, done = generation.number, False
            try:
                self._enter(generation, train)
                self._rendezvous.send("done", generation=number)
                done = True
            except NextGeneration:
                self._must_follow(number, Leave(ExitCode.RELAUNCH))
            except StuckError as error:
                self._must_follow(number, error)
            except SystemExit as leave:
                self._rendezvous.leave(leave.code if isinstance(leave.code, int) else 1, "it ends on its own")
                raise
            if not done and self._rendezvous.number == number:
                self._leave_rank(-1)  # it waits for another one

    def close(self) -> None:
        """Leave the launcher and the other ranks."""
        self._rendezvous.close()
        self._server.close()

    def _next(self, number: int, *, done: bool) -> Generation | None:
        try:
            return self._rendezvous.wait_newer(number)
        except RendezvousError as why:
            if done or os.environ.get(SPARE):
                return None  # this process is not needed any more
            raise Leave(ExitCode.RELAUNCH) from why

    def _enter(self, generation: Generation, train: Callable[[GenerationRank], None]) -> None:
        rank, first = find_rank(self._rendezvous, generation), generation.peers[0]
        self._leave_rank(rank)  # before the ranks connect: whoever has it next makes its page after that
        self._rendezvous.send("entering", generation=generation.number)
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(len(generation.peers))})
        self._page = read_environment(os.environ)
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

    def _leave_rank(self, rank: int) -> None:
        """Withdraw the page of the rank before, unless that was `rank`, too."""
        page, self._page = self._page, None
        if page is not None and page.place.rank != rank:
            withdraw_page(page.beacon_directory, page.place)

    def _must_follow(self, number: int, error: StuckError | Leave) -> None:
        """Return once there is a newer generation; raise `error` where there will be none."""
        self._rendezvous.send("paused", generation=number)  # once all have, there is a new one, though no rank was lost
        try:
            self._rendezvous.wait_over(number, NOTICE_S)
        except RendezvousError as why:
            code = error.code if isinstance(error, Leave) and isinstance(error.code, int) else 1
            self._rendezvous.leave(code, f"{error} ({why})")
            raise error from why

    def _free(self) -> None:
        """In the thread that hears the launcher: whatever waits for a lost rank fails now."""
        held = self._together
        if held is not None and (self._rendezvous.is_over(held[0]) or self._rendezvous.broken):
            held[1].hang_up()
