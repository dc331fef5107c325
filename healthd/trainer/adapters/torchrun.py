"""torchrun's elastic agent: made to leave when its node is condemned, so that it does not start the ranks there again.

    with agent_notified(), guard_of_group() as guard:
        ...

torchrun restarts its ranks whatever code they end with, on the same node. An agent that gets SIGTERM leaves without closing
the rendezvous: the others meet again without it. That is what this does, once, from the node's first rank.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from healthd.trainer.exit_codes import ExitCode, Leave

_RUN = "TORCHELASTIC_RUN_ID"
_log = logging.getLogger("healthd.trainer")


@contextmanager
def agent_notified(environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Around the guard: SIGTERM to this node's elastic agent if the rank leaves because the node is condemned (90).

    Does nothing where no torchrun started this process.
    """
    environ = os.environ if environ is None else environ
    agent = find_elastic_agent(environ)
    try:
        yield
    except Leave as leave:
        first = environ.get("LOCAL_RANK", "0") == "0"
        if leave.code == ExitCode.CONDEMNED and first and agent is not None and agent == find_elastic_agent(environ):
            _terminate_agent(agent)
        raise


def find_elastic_agent(environ: Mapping[str, str], proc: Path = Path("/proc")) -> int | None:
    """The process id of the agent: the nearest ancestor that did not itself inherit the run's id.

    Shells and wrappers between the agent and this process did. None outside torchrun, or where an ancestor cannot be
    looked at.
    """
    run = environ.get(_RUN)
    if not run:
        return None
    inherited = f"{_RUN}={run}".encode()
    pid = _read_parent_pid(proc / "self")
    while pid is not None and pid > 0:
        try:
            if inherited not in (proc / str(pid) / "environ").read_bytes().split(b"\0"):
                return pid
        except OSError:
            return None
        pid = _read_parent_pid(proc / str(pid))
    return None


def _read_parent_pid(process: Path) -> int | None:
    """Field 4 of /proc/PID/stat; the command before it is in brackets and may hold anything."""
    try:
        return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _terminate_agent(agent: int) -> None:
    try:
        os.kill(agent, signal.SIGTERM)
    except OSError as error:
        _log.warning("the elastic agent (pid %d) cannot be stopped: %s", agent, error.strerror)
    else:
        _log.warning("this node must be left: its elastic agent (pid %d) was stopped", agent)
