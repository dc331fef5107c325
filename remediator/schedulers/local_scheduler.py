"""No scheduler: our holds are in one JSON file, and the launcher checks each node's verdict before it starts ranks.

The file is the whole state. It is replaced atomically (written aside, synced, renamed, the folder synced), and a lock
beside it serialises writers. An operator holds a node with a reason of their own::

    {"version": 1, "holds": {"node7": {"reason": "fan replacement, ask Kim", "since": 1763670000.0}}}
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from remediator.model.scheduler_hold import REASON_PREFIX, ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.scheduler_protocol import (
    MayBegin,
    NodeCordon,
    check_cordon,
    check_operator_cordon,
    check_operator_uncordon,
    check_resume,
    format_operator_reason,
    format_own_reason,
)
from vocabulary.atomic_file import replace_file
from vocabulary.clock import Clock

FILE_VERSION = 1

Running = Callable[[Collection[str]], Mapping[str, tuple[str, ...]]]


class LocalHold(msgspec.Struct, frozen=True):
    """One node out of service: why, and since when (UTC seconds)."""

    reason: str
    since: float = 0.0


class LocalHolds(msgspec.Struct, frozen=True):
    """The content of the file."""

    version: int
    holds: dict[str, LocalHold]


class LocalScheduler:
    """Holds in the file `path`. `running` returns the jobs on the given nodes, from the trainers' beacons."""

    def __init__(self, path: Path, clock: Clock, running: Running = lambda _: {}) -> None:
        self._path = path
        self._clock = clock
        self._running = running

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        """Return every one of `nodes`: held if the file says so, otherwise free."""
        holds = self._read()
        if isinstance(holds, ActionOutcome):
            return {node: SchedulerNodeState(node, None, reason=holds.detail) for node in nodes}
        running = self._running(nodes)
        return {node: _describe_local_hold(node, holds.get(node), running.get(node)) for node in nodes}

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        """Write our hold."""
        hold = LocalHold(format_own_reason(reason), self._clock.wall())
        done = _held(node, hold.reason)
        return self._change(node, check_cordon, lambda holds: {**holds, node: hold}, done)

    def cordon_many(self, cordons: Sequence[NodeCordon], may_begin: MayBegin) -> Iterator[tuple[str, ActionOutcome]]:
        """Write our holds, each with its own reason, in one replacement of the file."""
        allowed = frozenset(may_begin([each.node for each in cordons]))
        ours = {each.node: format_own_reason(each.reason) for each in cordons if each.node in allowed}
        answers: dict[str, ActionOutcome] = {}

        def change(holds: dict[str, LocalHold]) -> dict[str, LocalHold]:
            placed = {}
            for node, reason in ours.items():
                early = check_cordon(_describe_local_hold(node, holds.get(node), ()))
                answers[node] = early or _held(node, reason)
                if early is None:
                    placed[node] = LocalHold(reason, self._clock.wall())
            return {**holds, **placed}

        trouble = self._replace(change)
        yield from ((node, trouble or answers[node]) for node in ours)

    def resume(self, node: str) -> ActionOutcome:
        """Remove our hold."""
        done = ActionOutcome(ActionResult.DONE, f"{node} may be used again")
        return self._change(
            node, check_resume, lambda holds: {name: hold for name, hold in holds.items() if name != node}, done
        )

    def cordon_for(self, node: str, reason: str) -> ActionOutcome:
        """Write an operator's hold."""
        hold = LocalHold(format_operator_reason(reason), self._clock.wall())
        done = _held(node, hold.reason)
        return self._change(node, check_operator_cordon, lambda holds: {**holds, node: hold}, done)

    def uncordon_for(self, node: str, seen: str) -> ActionOutcome:
        """Remove any hold."""
        done = ActionOutcome(ActionResult.DONE, f"{node} may be used again")
        return self._change(
            node,
            lambda hold: check_operator_uncordon(hold, seen),
            lambda holds: {name: hold for name, hold in holds.items() if name != node},
            done,
        )

    def evict(self, node: str) -> ActionOutcome:
        """Do nothing: nothing here could restart the work elsewhere."""
        return ActionOutcome(ActionResult.ALREADY, f"the work on {node} ends on its own")

    def _change(
        self,
        node: str,
        answer: Callable[[SchedulerNodeState], ActionOutcome | None],
        change: Callable[[dict[str, LocalHold]], dict[str, LocalHold]],
        done: ActionOutcome,
    ) -> ActionOutcome:
        early: list[ActionOutcome] = []

        def checked(holds: dict[str, LocalHold]) -> dict[str, LocalHold]:
            if (refused := answer(_describe_local_hold(node, holds.get(node), ()))) is None:
                return change(holds)
            early.append(refused)
            return holds

        return self._replace(checked) or next(iter(early), done)

    def _replace(self, change: Callable[[dict[str, LocalHold]], dict[str, LocalHold]]) -> ActionOutcome | None:
        """Write what `change` makes of the holds, unless nothing changes. Return why that failed."""
        try:
            with self._locked():
                holds = self._read()
                if isinstance(holds, ActionOutcome):
                    return holds
                if (changed := change(holds)) != holds:
                    content = msgspec.json.encode(LocalHolds(FILE_VERSION, changed))
                    replace_file(self._path, content, sync_content=True, sync_name=True)
        except BlockingIOError:
            return ActionOutcome(ActionResult.FAILED, f"{self._path}: another program is changing it")
        except OSError as error:
            todo = "free space or fix the folder's permissions"
            return ActionOutcome(ActionResult.FAILED, f"cannot write {self._path}: {error.strerror}; {todo}")
        return None

    def _read(self) -> dict[str, LocalHold] | ActionOutcome:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            return ActionOutcome(ActionResult.FAILED, f"cannot read {self._path}: {error.strerror}")
        try:
            found = msgspec.json.decode(data, type=LocalHolds)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return ActionOutcome(ActionResult.FAILED, f"{self._path} cannot be parsed ({error}); repair or remove it")
        if found.version != FILE_VERSION:
            return ActionOutcome(
                ActionResult.FAILED, f"{self._path} has version {found.version}; this program supports {FILE_VERSION}"
            )
        return found.holds

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the writers' lock. Never waits: a writer needs a millisecond, and the caller retries."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f"{self._path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield


def _held(node: str, reason: str) -> ActionOutcome:
    return ActionOutcome(ActionResult.DONE, f"{node} is held: {reason}")


def _describe_local_hold(node: str, hold: LocalHold | None, jobs: tuple[str, ...] | None) -> SchedulerNodeState:
    """Describe a hold. `jobs` is None for a node that has not reported: its work may still run."""
    if hold is None:
        return SchedulerNodeState(node, schedulable=True, jobs=jobs or ())
    owner = HoldOwner.US if hold.reason.startswith(REASON_PREFIX) else HoldOwner.OPERATOR
    return SchedulerNodeState(
        node, schedulable=False, drained=jobs == (), owner=owner, reason=hold.reason, jobs=jobs or ()
    )
