"""Exit codes: how a rank reports its result to the launcher.

    0   done
    90  saved; this rank's node is condemned: relaunch the job without it
    91  saved; a peer's node is condemned, or the job was stopped: relaunch this rank
    92  aborted without a fresh checkpoint: relaunch from the last one
    93  do not relaunch: the job itself is wrong

Any other code, or a signal, is a crash.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The documented codes."""

    DONE = 0
    CONDEMNED = 90
    RELAUNCH = 91
    ABORTED = 92
    NEVER_AGAIN = 93


class Leave(SystemExit):
    """Unwinds the training loop; the process ends with `code` even if unwinding hangs.

    `condemned`: this rank's node is, whatever the code.
    """

    def __init__(self, code: ExitCode, *, condemned: bool = False) -> None:
        super().__init__(int(code))
        self.condemned = condemned or code == ExitCode.CONDEMNED


def find_documented_code(error: BaseException | None) -> int | None:
    """Return the documented code for a loop that ended with `error`; None for a crash or the program's own code."""
    if error is not None and not isinstance(error, SystemExit):
        return None
    code = 0 if error is None else error.code or 0
    return code if isinstance(code, int) and code in set(ExitCode) else None
