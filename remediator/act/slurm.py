"""Slurm, through its own commands: ``scontrol`` and ``squeue`` in the one-line formats that 22.05 and later print.

Every command has a deadline; a controller that does not answer is "cannot ask", never "fine".
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Sequence

import msgspec

from remediator.act.scheduler import before_cordon, before_resume, our_reason
from remediator.model.hold import REASON_PREFIX, NodeHold, Outcome, Owner, Result

SEARCH_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/opt/slurm/bin"
HOSTLIST_NAMES_MAX = 100_000

# The first word of a state is the base, the others are flags.
BASES = frozenset(
    {"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE"}
)  # UNKNOWN: a controller that has just begun
WORKING = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
HELD = frozenset({"DRAIN", "DOWN", "FAIL"})  # these carry a reason, and so an owner
AWAY = frozenset(
    {
        "ERROR",
        "FUTURE",
        "NOT_RESPONDING",
        "INVALID_REG",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWER_DOWN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
    }
)
# How the reasons begin that Slurm itself writes; any other reason is a person's, or a tool's that a person set up.
OF_SLURM = (
    "Not responding",
    "Node unexpectedly rebooted",
    "Kill task failed",
    "Prolog error",
    "Epilog error",
    "batch job complete failure",
    "Duplicate jobid",
    "Low ",
    "gres/",
    "Reboot ",
    "reboot ",
    "ResumeTimeout reached",
)

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_STATE = re.compile(r"\sState=(\S+)")
_REASON = re.compile(r"\sReason=(.*)", re.DOTALL)  # the last field but the rare comment; may go over several lines
_STAMP = re.compile(r"\s*\[[^\s\]]*@\d{4}-\d\d-\d\dT[\d:]+\]")
_HOSTLIST_PART = re.compile(r"[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)*")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`conf`: the slurm.conf to use, or empty for the installed one. `deadline_s`: for each command."""

    conf: str = ""
    deadline_s: float = 10.0


class SlurmScheduler:
    """A Slurm cluster, as an operator of it (root, SlurmUser, or an account with operator rights)."""

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self._options = options or SlurmOptions()
        kept = {key: os.environ[key] for key in ("HOME", "USER", "LANG", "SLURM_CONF") if key in os.environ}
        self._env = kept | {"PATH": f"{os.environ.get('PATH', '')}:{SEARCH_PATH}", "SLURM_TIME_FORMAT": "standard"}
        if self._options.conf:
            self._env["SLURM_CONF"] = self._options.conf

    def observe(self, nodes: Collection[str]) -> dict[str, NodeHold]:
        """Every one of `nodes` as Slurm sees it now: two commands, whatever their number."""
        shown = self._run("scontrol", "show", "node", "--oneliner", "--all")
        if isinstance(shown, Outcome):
            return {node: NodeHold(node, None, reason=shown.detail) for node in nodes}
        queue = self._run("squeue", "--noheader", "--states=R,S,CF,CG", "--format=%i %N")
        if isinstance(queue, Outcome):
            return {node: NodeHold(node, None, reason=queue.detail) for node in nodes}
        known = parse_nodes(shown, parse_queue(queue))
        return {node: known.get(node) or NodeHold(node, None, reason=_unknown(node)) for node in nodes}

    def cordon(self, node: str, reason: str) -> Outcome:
        """Drain `node` with our reason; where Slurm itself had taken it out, its reason is kept behind ours."""
        ours = our_reason(reason)
        hold = self._look(node)
        if isinstance(hold, Outcome):
            return hold
        if (answer := before_cordon(hold)) is not None:
            return answer
        if hold.owner is Owner.SCHEDULER and hold.reason:
            ours = our_reason(f"{ours} (Slurm: {hold.reason})")
        done = self._run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={ours}")
        return done if isinstance(done, Outcome) else Outcome(Result.DONE, f"Slurm drains {node}: {ours}")

    def resume(self, node: str) -> Outcome:
        """Lift our drain."""
        hold = self._look(node)
        if isinstance(hold, Outcome):
            return hold
        if (answer := before_resume(hold)) is not None:
            return answer
        done = self._run("scontrol", "update", f"nodename={node}", "state=resume")
        return done if isinstance(done, Outcome) else Outcome(Result.DONE, f"Slurm may use {node} again")

    def evict(self, node: str) -> Outcome:
        """Nothing: a drained node empties as its jobs end, and ending one is for its owner."""
        return Outcome(Result.ALREADY, f"Slurm waits until the work on {node} ends")

    def _look(self, node: str) -> NodeHold | Outcome:
        shown = self._run("scontrol", "show", "node", node, "--oneliner", "--all")
        if isinstance(shown, Outcome):
            # The controller answered, and it says there is no such node: trying again will not help.
            return Outcome(Result.REFUSED, _unknown(node)) if "not found" in shown.detail else shown
        hold = parse_nodes(shown, {}).get(node)
        return hold or Outcome(Result.REFUSED, _unknown(node))

    def _run(self, *argv: str) -> str | Outcome:
        """What the command printed, or FAILED with the reason."""
        try:
            done = subprocess.run(
                argv,
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._options.deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(Result.FAILED, f"{argv[0]} gave no answer within {self._options.deadline_s:g} s")
        except OSError as error:
            return Outcome(Result.FAILED, f"cannot run {argv[0]}: {error.strerror}; is slurm-client installed?")
        out, err = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
        if done.returncode:
            return Outcome(Result.FAILED, f"{' '.join(argv[:3])}: {_one_line(err or out) or 'no message'}")
        return out


def parse_nodes(text: str, jobs: dict[str, tuple[str, ...]]) -> dict[str, NodeHold]:
    """Read ``scontrol show node --oneliner``; `jobs` as from `parse_queue`. Records without a name are skipped."""
    holds = (_parse_node(f" {record}", jobs) for record in _RECORD.split(text)[1:])
    return {hold.node: hold for hold in holds if hold.node}


def _parse_node(record: str, jobs: dict[str, tuple[str, ...]]) -> NodeHold:
    node = next(iter(record.split(None, 1)), "")
    state = _STATE.search(record)
    if state is None:
        return NodeHold(node, None, reason=f"Slurm says nothing of {node}'s state")
    words = frozenset(word.rstrip("*$~#!%@^-") for word in state[1].split("+"))
    if not words & BASES:
        return NodeHold(node, None, reason=f"Slurm cannot tell yet, or in words we do not know: {node} is {state[1]}")
    found = _REASON.search(record)
    reason = _one_line(_STAMP.sub("", found[1])) if found else ""
    running = jobs.get(node, ())
    return NodeHold(
        node,
        schedulable=not words & (HELD | AWAY),
        drained=bool(words & HELD) and not words & WORKING and not running,
        owner=_owner(words, reason),
        reason=reason,
        jobs=running,
    )


def _owner(words: frozenset[str], reason: str) -> Owner:
    if not words & HELD:
        return Owner.SCHEDULER if words & AWAY else Owner.NOBODY
    if reason.startswith(REASON_PREFIX):
        return Owner.US
    return Owner.SCHEDULER if not reason or reason.startswith(OF_SLURM) else Owner.OPERATOR


def parse_queue(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``squeue --format='%i %N'``: the jobs of each node, in Slurm's order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        job, _, hosts = line.strip().partition(" ")
        for node in expand_hostlist(hosts.strip()):
            found.setdefault(node, []).append(job)
    return {node: tuple(jobs) for node, jobs in found.items()}


def expand_hostlist(text: str) -> Iterator[str]:
    """Every name in a host list of Slurm's.

    >>> list(expand_hostlist("login,gpu[08-10],r[1-2]n[1,3]"))
    ['login', 'gpu08', 'gpu09', 'gpu10', 'r1n1', 'r1n3', 'r2n1', 'r2n3']
    """
    budget = HOSTLIST_NAMES_MAX
    for part in _HOSTLIST_PART.findall(text):
        for name in _expand(part):
            if budget == 0:
                return
            budget -= 1
            yield name


def _expand(part: str) -> Iterator[str]:
    match = _BRACKETS.search(part)
    if match is None:
        if part:
            yield part
        return
    for choice in match[1].split(","):
        for number in _numbers(choice):
            yield from _expand(part[: match.start()] + number + part[match.end() :])


def _numbers(choice: str) -> Sequence[str]:
    first, dash, last = choice.partition("-")
    if not (dash and first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        return (choice,)
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)[:HOSTLIST_NAMES_MAX]]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _unknown(node: str) -> str:
    return f"Slurm knows no node {node}; it must be named as in slurm.conf (NodeName)"
