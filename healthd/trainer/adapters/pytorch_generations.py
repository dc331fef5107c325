"""A training function that is entered again when a rank was lost: the ranks that live keep their processes.

    def train(job):
        model = DistributedDataParallel(make_model().to(job.device))
        state = TrainingState(model, optimizer, sampler=sampler)
        with job.checkpoints("/shared/run-7", state) as checkpoints:
            for step in range(checkpoints.load_latest(), steps):
                with job.guard.step(step) as s:
                    ...
                    checkpoints.save_if_due(step, s)

    run_guarded_job(train)

Under `healthctl launch --swap --spares 1` a lost rank is replaced by a process that waits on a spare node. All others
leave `train` by an exception, and enter it again with the next generation of the process group; imports, the CUDA context
and compiled functions stay. The state comes from the memory of the nodes. Without such a launcher `train` is called once.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import logging
import math
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

from healthd.trainer.adapters.group_sockets import list_open_sockets, shut_down_connections
from healthd.trainer.adapters.process_group import shared_by_group
from healthd.trainer.adapters.pytorch import PyTorch
from healthd.trainer.adapters.pytorch_job import GuardedJob, device_of_this_rank, guarded_job
from healthd.trainer.beacons.beacon import withdraw_page
from healthd.trainer.beacons.rank_environment import RankEnvironment, read_environment
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.exchange_limits import ExchangeLimits, GenerationStore, await_all_ranks
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.guard import Guard
from healthd.trainer.process_exit import run_within
from healthd.trainer.rank_replacement import NextGeneration
from healthd.trainer.rendezvous_client import SPARE, Generation, RendezvousClient, RendezvousError
from healthd.trainer.rendezvous_replacer import RendezvousReplacer

# For the members of a new generation to connect, once all have met. No shut-down frees who waits for a member that died
# before it could connect (gloo: for five times as long), so this is below the time that the launcher gives a generation.
JOIN_SECONDS = 6.0
FIRST_JOIN_SECONDS = 60.0  # all processes of a large job connect at once, on nodes that are busy with its start
_CONNECT_SECONDS = 2.0  # between two looks whether a newer one is there: torch tries for as long as it may
NOTICE_SECONDS = 30.0  # after a collective has failed, for the launcher to see why
TEARDOWN_SECONDS = 5.0
_FREE_EVERY_SECONDS = 0.02
_COMMUNICATION = ("gloo", "nccl", "connection", "socket", "broken pipe", "timed out")

T = TypeVar("T")
_log = logging.getLogger("healthd.trainer")


def run_guarded_job(train: Callable[[GuardedJob], T], *, warm_up: Callable[[], object] | None = None) -> T | None:
    """Call `train` with the job that the launcher's variables describe, again in each generation of its process group.

    Args:
        train: makes or wraps its model for this process group, loads the newest state, and trains to the last step.
        warm_up: what a spare does before it waits, such as building the model once; imports are done by then.

    Returns:
        What `train` returned; None in a spare that was not needed.

    Raises:
        Leave: the ranks leave on an order; let it pass.
        Exception: what `train` raised, where no spare can help.
    """
    with contextlib.closing(_ServedStore()) as served:
        rendezvous = RendezvousClient.from_env(served.port)
        if rendezvous is None:
            with guarded_job() as job:
                return train(job)
        if os.environ.get(SPARE):
            _run_warm_up(warm_up)
        rendezvous.arrive()
        return _Generations(rendezvous, served.port).run(train)


class _ServedStore:
    """The store of this process, for the generations in which it is rank 0. Made at once: its port is sent on arrival."""

    def __init__(self) -> None:
        self._store: dist.TCPStore | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._store is None:
            self._store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        return int(self._store.port)

    def close(self) -> None:
        """Let it go."""
        self._store = None


class _Generations:
    """Enters each generation in turn."""

    def __init__(self, rendezvous: RendezvousClient, served_port: int) -> None:
        self._rendezvous = rendezvous
        self._served_port = served_port
        self._entered: tuple[Generation, frozenset[int]] | None = None  # and the sockets that were there before
        self._copies_used: set[Path] = set()
        self._place: RankEnvironment | None = None  # where the page of the newest rank of this process is
        self._first = -1  # number of the first generation that this process was in
        self._lock = threading.Lock()
        rendezvous.on_change(self._begin_to_free)

    def run(self, train: Callable[[GuardedJob], T]) -> T | None:
        """To the end of the job."""
        number, result, done = -1, None, False
        while (generation := self._next(number, done=done)) is not None:
            number, done = generation.number, False
            try:
                result = self._enter(generation, train)
                self._rendezvous.send("done", generation=number)
                done = True
            except NextGeneration:
                self._must_go_on(number, Leave(ExitCode.RELAUNCH))  # its state is in the nodes' memory
            except SystemExit as leave:  # all ranks do, or the program has its own reasons
                self._rendezvous.leave(_exit_code(leave), "it ends on its own")
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is: the launcher knows whether a lost peer is why
                self._must_go_on(number, error)
                _log.warning(
                    "generation %d has ended: %s; this rank continues in the next one", number, _first_line(error)
                )
                traceback.clear_frames(error.__traceback__)  # they hold the model of the old process group
            finally:
                self._end_group()
            if not done and self._rendezvous.number == number:
                self._leave_rank(-1)  # it waits for another one
        if done and not self._rendezvous.stopped:  # all ranks are done: no rank needs the copies now
            for mine in self._copies_used:
                shutil.rmtree(mine, ignore_errors=True)
        return result

    def _next(self, number: int, *, done: bool) -> Generation | None:
        try:
            return self._rendezvous.wait_newer(number)
        except RendezvousError as why:
            if not done and not os.environ.get(SPARE):
                _log.warning("this rank has not begun: %s", why)
                raise Leave(ExitCode.RELAUNCH) from why
            _log.info("this process is no longer needed: %s", why)
            return None

    def _enter(self, generation: Generation, train: Callable[[GuardedJob], T]) -> T:
        rank = next(at for at, peer in enumerate(generation.peers) if peer.member == self._rendezvous.member)
        world = len(generation.peers)
        self._first = self._first if self._first >= 0 else generation.number
        with self._lock:
            self._entered = (generation, frozenset(list_open_sockets()))
        self._leave_rank(rank)  # before the ranks connect: whoever has it next makes its page after that
        self._rendezvous.send("entering", generation=generation.number)
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world)})
        device = device_of_this_rank()
        number = generation.number
        over = functools.partial(self._is_over, number)
        join_seconds = JOIN_SECONDS if number else FIRST_JOIN_SECONDS
        store = dist.PrefixStore(f"generation-{number}", self._connect_store(generation))
        await_all_ranks(store, "here", world, ExchangeLimits(math.inf, over=over))
        usual = default_pg_nccl_timeout if device.type == "cuda" else default_pg_timeout
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world,
            timeout=dt.timedelta(seconds=join_seconds),
        )
        shared = shared_by_group()
        dist.distributed_c10d._set_pg_timeout(usual or default_pg_timeout)  # noqa: SLF001 - torch has no public name for it
        self._rendezvous.send("entered", generation=number)
        swap = RendezvousReplacer(self._rendezvous, generation)
        assert shared.store is not None  # noqa: S101 - there is a process group
        guard = Guard.from_env(store=GenerationStore(shared.store, lambda: swap.over), environ=shared.environ)
        self._place = read_environment(shared.environ)
        guard.enable_swap(swap)
        with guard:
            limits = ExchangeLimits(connect_seconds=join_seconds, over=over)
            newcomer = 0 < number == self._first
            shown = (self._rendezvous, number, self._copies_used, newcomer, limits)
            return train(GuardedJob(guard, rank, world, device, shared, *shown))

    def _is_over(self, number: int) -> bool:
        """Whether the generation lacks a rank, so that waiting for all of its ranks is pointless."""
        return self._rendezvous.is_over(number) or self._rendezvous.broken

    def _leave_rank(self, rank: int) -> None:
        """Withdraw the page of the rank before, unless that was `rank`, too."""
        place, self._place = self._place, None
        if place is not None and place.place.rank != rank:
            withdraw_page(place.beacon_directory, place.place)

    def _connect_store(self, generation: Generation) -> dist.TCPStore:
        """The store of rank 0, which may be gone already, or lost next."""
        first, give_up_at = generation.peers[0], time.monotonic() + JOIN_SECONDS
        brief = dt.timedelta(seconds=_CONNECT_SECONDS)
        while True:
            try:
                store = dist.TCPStore(first.host, first.port, is_master=False, timeout=brief)
            except dist.DistError:
                over = self._rendezvous.is_over(generation.number) or self._rendezvous.stopped
                if over or time.monotonic() > give_up_at:
                    raise
            else:
                store.set_timeout(dt.timedelta(seconds=JOIN_SECONDS))
                return store

    def _must_go_on(self, number: int, error: Exception | Leave) -> None:
        """Return once there is a newer generation; raise `error` where there will be none."""
        ours = not isinstance(error, Leave) and not _is_communication_error(error)
        if ours and not self._rendezvous.is_over(number):
            self._rendezvous.leave(1, _first_line(error))
            raise error
        self._rendezvous.send("paused", generation=number)  # once all have, there is a new one, though no rank was lost
        try:
            self._rendezvous.wait_over(number, NOTICE_SECONDS)
        except RendezvousError as why:
            code = _exit_code(error) if isinstance(error, Leave) else 1
            self._rendezvous.leave(code, f"{_first_line(error)} ({why})")
            raise error from why

    def _begin_to_free(self) -> None:
        """In a thread of its own: the one that hears the launcher must go on hearing it."""
        threading.Thread(target=self._free, name="healthd-free-rank", daemon=True).start()

    def _free(self) -> None:
        """Whatever the old generation waits for, it fails now."""
        while True:
            with self._lock:
                if self._entered is None:
                    return
                generation, before = self._entered
                if not self._rendezvous.is_over(generation.number) and not self._rendezvous.broken:
                    return
                hosts = {peer.host for peer in generation.peers}
                shut_down_connections(but=before, served_port=self._served_port, hosts=hosts)
                if torch.cuda.is_initialized():
                    run_within(TEARDOWN_SECONDS, "communicator abort", PyTorch().abort)
            time.sleep(_FREE_EVERY_SECONDS)  # what it connects meanwhile must fail, too

    def _end_group(self) -> None:
        with self._lock:
            self._entered = None
        run_within(TEARDOWN_SECONDS, "teardown", PyTorch().teardown)
        # Torch names groups by counting them, in each process for itself. A group that could not be made was counted too.
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - as destroy_process_group does


def _run_warm_up(action: Callable[[], object] | None) -> None:
    """What takes seconds the first time: an optimizer's first step, the CUDA context, what the job asks for."""
    parameter = torch.nn.Parameter(torch.zeros(1, device=device_of_this_rank()))
    parameter.grad = torch.zeros_like(parameter)
    torch.optim.AdamW([parameter]).step()
    if action is not None:
        action()


def _is_communication_error(error: Exception) -> bool:
    """Whether a lost peer may be the reason for it: then the launcher knows more."""
    if isinstance(error, (dist.DistError, CheckpointError, ConnectionError, RendezvousError, TimeoutError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _COMMUNICATION)


def _exit_code(leave: SystemExit) -> int:
    """With which code the process will end."""
    return leave.code if isinstance(leave.code, int) else int(leave.code is not None)


def _first_line(error: BaseException) -> str:
    text = str(error).partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}"
