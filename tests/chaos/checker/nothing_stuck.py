"""10. When all disasters are over everything settles, nobody has ended by themselves, and everybody goes when told to."""

from __future__ import annotations

from tests.chaos.checker.history import History, Line

DEPOSED = "postgresql"  # a centre that lost its lead there ends by itself, by design


def judge(history: History) -> list[str]:
    """The run's own words on its end, and the daemons' exits."""
    wrong = [f"it did not settle: {history.end['unsettled']}"] if history.end["unsettled"] else []
    for line in history.told("processes"):
        deposed = history.plan["world"]["database"] == DEPOSED and line["daemon"].startswith("centre")
        excused = (
            deposed or line["daemon"] == "job" or history.struck("read_only_disk", "full_disk", target=line["daemon"])
        )
        if line["event"] == "ended" and not line["ours"] and not excused:
            wrong.append(f"{line['daemon']} ended by itself with {line['code']}")
    wrong += [
        f"{line['daemon']} did not end well when told to: {line['code']}"
        for line in history.told("ends")
        if line["daemon"] != "job" and line["code"] != 0 and not (line["code"] == 1 and _may_be_deposed(history, line))
    ]
    return wrong


def _may_be_deposed(history: History, line: Line) -> bool:
    return history.plan["world"]["database"] == DEPOSED and line["daemon"].startswith("centre")
