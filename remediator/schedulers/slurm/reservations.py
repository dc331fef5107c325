"""Reservations for multi-node tests: only the test's jobs start there, and no drain is needed.

The name marks the owner: we create and delete only reservations with our prefix. Each has an end, so that a controller
that dies leaves none behind.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, SlurmController, SlurmError
from remediator.schedulers.slurm.slurm_records import Reservation

PREFIX = "gpu-healthd-"
_PURPOSE = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def create_reservation(
    slurm: SlurmController, purpose: str, nodes: tuple[str, ...], minutes: int, user: str, due: CommandDeadline
) -> ActionOutcome:
    """Reserve `nodes` from now on for jobs of `user`. Repeating it changes nothing.

    Raises:
        SlurmError: Slurm cannot be queried, or refuses.
        ValueError: the purpose is no valid name part, or there is no node or no time.
    """
    name = _reservation_name(purpose)
    if not nodes or minutes < 1:
        raise ValueError(f"{name}: a reservation needs at least one node and one minute")
    if (there := _find_reservation(slurm, name, due)) is None:
        try:
            slurm.reserve(name, nodes, minutes, user, due)
        except SlurmError:
            if (there := _find_reservation(slurm, name, due)) is None:  # unless another process was faster
                raise
        else:
            return ActionOutcome(ActionResult.DONE, f"{name} holds {', '.join(nodes)} for {minutes} min")
    if set(there.nodes) == set(nodes):
        return ActionOutcome(ActionResult.ALREADY, f"{name} already holds them{_format_reservation_end(there)}")
    return ActionOutcome(
        ActionResult.REFUSED, f"{name} holds {', '.join(there.nodes)}{_format_reservation_end(there)}; release it first"
    )


def delete_reservation(slurm: SlurmController, purpose: str, due: CommandDeadline) -> ActionOutcome:
    """Delete the reservation for `purpose`, if there is one.

    Raises:
        SlurmError: Slurm cannot be queried, or refuses: jobs may run in it.
        ValueError: the purpose is no valid name part.
    """
    name = _reservation_name(purpose)
    if _find_reservation(slurm, name, due) is None:
        return ActionOutcome(ActionResult.ALREADY, f"reservation {name} does not exist")
    slurm.release(name, due)
    return ActionOutcome(ActionResult.DONE, f"{name} has ended")


def _reservation_name(purpose: str) -> str:
    if _PURPOSE.fullmatch(purpose) is None:
        raise ValueError(f"{purpose!r} is not allowed in a reservation's name: up to 40 of A-Z a-z 0-9 . _ -")
    return PREFIX + purpose


def _find_reservation(slurm: SlurmController, name: str, due: CommandDeadline) -> Reservation | None:
    return next((one for one in slurm.reservations(due) if one.name == name), None)


def _format_reservation_end(there: Reservation) -> str:
    if there.ends_at is None:
        return ""
    return f" until {datetime.fromtimestamp(there.ends_at, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
