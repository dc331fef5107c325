"""Becomes the training command, with torch's variables set: `python -m healthd.launcher.rank COMMAND...`.

Slurm tells a task its place in its own words; a local rank must not outlive its launcher. Then exec: no process stays
in between, so signals and exit codes are the command's own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

from healthd.trainer.rendezvous import ADDRESS, MEMBER, SPARE

PER_NODE_VARIABLE = "HEALTHD_PER_NODE"
PARENT_VARIABLE = "HEALTHD_LAUNCHER_PID"
FIRST_MEMBER, LOCAL_RANKS = "HEALTHD_FIRST_MEMBER", "HEALTHD_LOCAL_RANKS"  # of a step that was started later
_FROM_SLURM = {
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_NTASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
    "HEALTHD_NODE": "SLURMD_NODENAME",
}
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", PER_NODE_VARIABLE)
_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _NOT_RUNNABLE = 127, 126


def placed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with torch's variables filled in from Slurm's, where there are any.

    A process per node is told which node it is; its ranks it makes and numbers itself. Where ranks are replaced, Slurm
    counts spares as well, so the size of the world is the launcher's word, and a spare has no rank yet.
    """
    found = {ours: environ[theirs] for ours, theirs in _FROM_SLURM.items() if theirs in environ}
    if ADDRESS in environ:
        member = found.get("RANK") or environ[MEMBER]
        if FIRST_MEMBER in environ:
            member = str(int(member) + int(environ[FIRST_MEMBER]))
            found["LOCAL_RANK"] = environ[LOCAL_RANKS].split(",")[int(found["LOCAL_RANK"])]
        given = {**environ, **found, "WORLD_SIZE": environ["WORLD_SIZE"], MEMBER: member}
        if int(member) >= int(environ["WORLD_SIZE"]):
            return {key: value for key, value in given.items() if key != "RANK"} | {SPARE: "1"}
        return given
    if PER_NODE_VARIABLE not in environ:
        return {**environ, **found}
    number = found.get("RANK") or environ.get("RANK", "0")
    kept = {key: value for key, value in environ.items() if key not in _OF_RANKS}
    node = {"HEALTHD_NODE": found["HEALTHD_NODE"]} if "HEALTHD_NODE" in found else {}
    return {**kept, **node, "NODE_RANK": number, "PET_NODE_RANK": number}


def die_with(parent: int, how: signal.Signals) -> None:
    """Let the kernel end this process when the launcher dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(128 + signal.SIGKILL)


def main() -> None:
    """Exec the command."""
    command = sys.argv[1:]
    environ = placed(os.environ)
    parent = environ.pop(PARENT_VARIABLE, "")
    if parent:
        with_ranks = (
            PER_NODE_VARIABLE in os.environ
        )  # its ranks are not ours to end: only it can, so it must be able to
        die_with(int(parent), signal.SIGTERM if with_ranks else signal.SIGKILL)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"healthctl launch: cannot run {command[0]}: {error.strerror}\n")
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUNNABLE)


if __name__ == "__main__":
    main()
