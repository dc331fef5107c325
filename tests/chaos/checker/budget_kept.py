"""3. Never more nodes isolated than the budget allows, at once or within the hour, and never sooner after one another."""

from __future__ import annotations

import itertools

from tests.chaos.checker.history import History

SLACK_S = 0.001  # of the clock's own resolution


def judge(history: History) -> list[str]:
    """The level by the scheduler's own record; rate and gap by the decisions, whose times the clock gave."""
    world = history.plan["world"]
    wrong, out, incidents = [], set(), set()
    for line, before, after in history.holds():
        if after:
            out.add(line["node"])
        else:
            out.discard(line["node"])
        if after and not before:
            incidents.add(line["reason"].split()[1])
            if len(out) > world["isolated_max"]:
                wrong.append(f"{', '.join(sorted(out))} were out at once, allowed are {world['isolated_max']}")
    if len(incidents) > world["per_hour"] and not history.struck("clock_step"):
        wrong.append(f"{len(incidents)} nodes were taken out within the hour, allowed are {world['per_hour']}")
    planned = {row["decision"] for row in history.isolating()}
    acted = sorted(row["at"] for row in history.rows("decisions") if row["id"] in planned)
    close = [
        later - earlier for earlier, later in itertools.pairwise(acted) if later - earlier < world["gap_s"] - SLACK_S
    ]
    if close and not history.struck("clock_step"):
        wrong.append(f"{min(close):.2f} s between two isolations, asked for are {world['gap_s']} s")
    return wrong
