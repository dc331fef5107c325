"""One form of answer for each kind of asker: what it wants to read, and which exit code means what to it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3  # what Nagios makes of an exit code
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
NPD_BYTES_MAX = 80  # node-problem-detector cuts what is longer, by default


class Judgement(NamedTuple):
    """What is to be said: the state, in a line, and how long ago healthd said it (None: it said nothing)."""

    state: int
    text: str
    age_s: float | None = None


class Reply(NamedTuple):
    """What is printed (nothing if empty), and the exit code."""

    text: str
    code: int


def nagios(judgement: Judgement) -> Reply:
    """A Nagios plugin: the state's word, the text, and behind a bar the performance data."""
    age = "" if judgement.age_s is None else f" | age={judgement.age_s:.1f}s"
    return Reply(f"{WORDS[judgement.state]} - {judgement.text.replace('|', '/')}{age}", judgement.state)


def app(judgement: Judgement) -> Reply:
    """A job's own launch script: Nagios' codes, and the text alone."""
    return Reply(judgement.text, judgement.state)


def prolog(judgement: Judgement) -> Reply:
    """Slurm's prolog: anything but 0 drains the node and requeues the job. A degraded node may work."""
    bad = judgement.state in (CRITICAL, UNKNOWN)
    return Reply(f"healthd: {judgement.text}" if bad else "", int(bad))


def epilog(judgement: Judgement) -> Reply:
    """Slurm's epilog: the same, but only for what is known: the next prolog asks again."""
    bad = judgement.state == CRITICAL
    return Reply(f"healthd: {judgement.text}" if bad else "", int(bad))


def nhc(judgement: Judgement) -> Reply:
    """As LBNL's node health check prints it, for HealthCheckProgram and NRPE."""
    if judgement.state in (OK, WARNING):
        return Reply(f"OK:  nhc:  {judgement.text}", 0)
    return Reply(f"ERROR:  nhc:  Health check failed:  {judgement.text}", 1)


def npd(judgement: Judgement) -> Reply:
    """A custom plugin of node-problem-detector: 0 is fine, 1 a problem, 2 not known; a short line."""
    codes = {OK: 0, WARNING: 0, CRITICAL: 1, UNKNOWN: 2}
    text = judgement.text.encode()[:NPD_BYTES_MAX].decode(errors="ignore")
    return Reply(text, codes[judgement.state])


FORMS: dict[str, Callable[[Judgement], Reply]] = {
    "nagios": nagios,
    "prolog": prolog,
    "epilog": epilog,
    "app": app,
    "nhc": nhc,
    "npd": npd,
}
