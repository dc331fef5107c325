"""One output format per monitoring system: its text and its exit codes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3  # Nagios' exit codes
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
NPD_BYTES_MAX = 80  # node-problem-detector truncates longer messages by default


class NodeJudgement(NamedTuple):
    """The result: state, one-line text, and the verdict's age in seconds (None: no verdict)."""

    state: int
    text: str
    age_s: float | None = None


class CheckReply(NamedTuple):
    """The output (nothing if empty), and the exit code."""

    text: str
    code: int


def format_nagios_reply(judgement: NodeJudgement) -> CheckReply:
    """A Nagios plugin: state, text, and after a bar the performance data."""
    age = "" if judgement.age_s is None else f" | age={judgement.age_s:.1f}s"
    return CheckReply(f"{WORDS[judgement.state]} - {judgement.text.replace('|', '/')}{age}", judgement.state)


def format_app_reply(judgement: NodeJudgement) -> CheckReply:
    """A job's launch script: Nagios' codes, and only the text."""
    return CheckReply(judgement.text, judgement.state)


def format_prolog_reply(judgement: NodeJudgement) -> CheckReply:
    """Slurm's prolog: any code but 0 drains the node and requeues the job. A degraded node passes."""
    bad = judgement.state in (CRITICAL, UNKNOWN)
    return CheckReply(f"healthd: {judgement.text}" if bad else "", int(bad))


def format_epilog_reply(judgement: NodeJudgement) -> CheckReply:
    """Slurm's epilog: like the prolog, but unknown passes, since the next prolog checks again."""
    bad = judgement.state == CRITICAL
    return CheckReply(f"healthd: {judgement.text}" if bad else "", int(bad))


def format_nhc_reply(judgement: NodeJudgement) -> CheckReply:
    """The format of LBNL's node health check, for HealthCheckProgram and NRPE."""
    if judgement.state in (OK, WARNING):
        return CheckReply(f"OK:  nhc:  {judgement.text}", 0)
    return CheckReply(f"ERROR:  nhc:  Health check failed:  {judgement.text}", 1)


def format_npd_reply(judgement: NodeJudgement) -> CheckReply:
    """A custom plugin of node-problem-detector: 0 OK, 1 problem, 2 unknown; a short line."""
    codes = {OK: 0, WARNING: 0, CRITICAL: 1, UNKNOWN: 2}
    text = judgement.text.encode()[:NPD_BYTES_MAX].decode(errors="ignore")
    return CheckReply(text, codes[judgement.state])


FORMS: dict[str, Callable[[NodeJudgement], CheckReply]] = {
    "nagios": format_nagios_reply,
    "prolog": format_prolog_reply,
    "epilog": format_epilog_reply,
    "app": format_app_reply,
    "nhc": format_nhc_reply,
    "npd": format_npd_reply,
}
