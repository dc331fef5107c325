"""10. When all disasters are over everything settles, nobody has ended by themselves, and everybody goes when told to.

On PostgreSQL a centre that lost its lead ends by itself, by design, with 1. It may lose it where the database was struck, or where
it stood still itself so that the other one took over; not for any other reason. On a damaged SQLite it ends with 1 whenever it is
started, until a copy is in place.
"""

from __future__ import annotations

from tests.chaos.checker.history import History, Line

OF_DATABASE = ("database_crash", "database_failover")
WITH_WORDS = 1
LEARNS_S = 20.0  # after the disaster: until PostgreSQL recovers and both have asked it, on a busy machine
YOUNG_S = 2.0  # until a process that was just started heeds a signal
SIGTERM = -15


def judge(history: History) -> list[str]:
    """The run's own words on its end, the daemons' exits, and what they wrote when something was not foreseen."""
    wrong = [f"it did not settle: {history.end['unsettled']}"] if history.end["unsettled"] else []
    for line in history.told("processes"):
        excused = line["daemon"] == "job" or history.struck("read_only_disk", "full_disk", target=line["daemon"])
        if line["event"] == "ended" and not line["ours"] and not excused and not _may_end(history, line):
            wrong.append(f"{line['daemon']} ended by itself with {line['code']}")
    wrong += [
        f"{line['daemon']} did not end well when told to: {line['code']}"
        for line in history.told("ends")
        if line["daemon"] != "job" and line["code"] != 0
        if not _may_end(history, line) and not _too_young(history, line)
    ]
    return wrong + [f"{name} wrote a traceback: {last}" for name, last in history.tracebacks.items()]


def _may_end(history: History, line: Line) -> bool:
    daemon = line["daemon"]
    if not daemon.startswith("centre") or line["code"] != WITH_WORDS:
        return False
    if history.plan["world"]["database"] == "sqlite":
        struck = history.times("corrupt_database")
    else:
        struck = [*history.times(*OF_DATABASE), *history.times("suspend", target=daemon)]
    learns_s = 0.0 if history.plan["world"]["database"] == "sqlite" else LEARNS_S
    return any(since <= line["mono"] <= until + learns_s for since, until in struck)


def _too_young(history: History, line: Line) -> bool:
    started = [
        each["mono"]
        for each in history.told("processes")
        if each["daemon"] == line["daemon"] and each["event"] == "started"
    ]
    return line["code"] == SIGTERM and bool(started) and line["mono"] - max(started) < YOUNG_S
