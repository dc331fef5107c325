"""Whoever holds the ranks: each step has the loss of an undisturbed run, bit for bit, none is left out, and none is lost in silence.

The undisturbed losses are computed here, without ranks. A step is finished once every rank of its generation has it. A swap says
how many finished steps are trained once more.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.checker.history import History, Line

FIRST_STEPS = ("swapped", "shrunk", "grown", "resumed")  # events of the first step of a generation
Generation = tuple[int, int]  # of which attempt, and its number


def judge(history: History) -> list[str]:
    """The ranks' own step logs, and what the launcher wrote of its generations."""
    trained = sorted((line for line in history.steps if line["event"] == "step"), key=lambda line: line["mono"])
    return [*_losses(trained), *_left_out(history, trained), *_trained_again(history, trained)]


def undisturbed_losses() -> Iterator[float]:
    """Of one process, from the first step on: a linear model over twelve samples a step."""
    w = [0.0, 0.0, 0.0, 0.0]
    for step in itertools.count():
        gradient, loss = [0.0, 0.0, 0.0, 0.0], 0.0
        for sample in range(12):
            x = [(31 * step + 17 * sample + 7 * column) % 97 / 97 for column in range(4)]
            y = (13 * step + 5 * sample) % 11 / 11
            off = -y + w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3]
            gradient = [gradient[column] + off * x[column] for column in range(4)]
            loss += off * off
        w = [w[column] - 0.05 * (gradient[column] / 12) for column in range(4)]
        yield loss / 12


def _losses(trained: list[Line]) -> list[str]:
    highest = max((line["step"] for line in trained), default=-1)
    right = [loss.hex() for loss in itertools.islice(undisturbed_losses(), highest + 1)]
    return [
        f"step {line['step']} on rank {line['rank']} has the loss {line.get('loss')}, undisturbed it is {right[line['step']]}"
        for line in trained
        if line.get("loss") != right[line["step"]]
    ]


def _left_out(history: History, trained: list[Line]) -> list[str]:
    steps = {line["step"] for line in trained}
    missing = set(range(max(steps, default=-1) + 1)) - steps
    wrong = [f"nobody has trained step {min(missing)}"] if missing else []
    last: dict[tuple[Generation, int], int] = {}
    for line in trained:
        key = (_generation(line), line["pid"])
        if line["step"] != last.get(key, line["step"] - 1) + 1:
            wrong.append(f"rank {line['rank']} went from step {last[key]} to {line['step']}")
        last[key] = line["step"]
    named = [line["step"] for line in history.told("last_step")]
    if history.end["job"] == "done" and named and max(steps, default=-1) != named[-1]:
        wrong.append(f"the job is done after step {max(steps, default=-1)}, its last one is {named[-1]}")
    return wrong


def _trained_again(history: History, trained: list[Line]) -> list[str]:
    ranks: dict[tuple[Generation, int], int] = defaultdict(int)
    worlds: dict[Generation, int] = {}
    first: dict[Generation, int] = {}
    for line in trained:
        place = _generation(line)
        ranks[place, line["step"]] += 1
        worlds[place] = line["world"]
        first[place] = min(first.get(place, line["step"]), line["step"])
    finished = {key for key, count in ranks.items() if count == worlds[key[0]]}
    wrong = []
    for event in history.told("launcher"):
        if event["event"] not in FIRST_STEPS or event["lost"] is None:
            continue
        place = (event["attempt"], event["generation"])
        if place not in first:
            wrong.append(f"generation {place[1]} of attempt {place[0]} has done a step, and no rank has it")
            continue
        before = {step for (attempt, number), step in finished if attempt == place[0] and number < place[1]}
        again = sum(step >= first[place] for step in before)
        if again > event["lost"]:
            wrong.append(f"generation {place[1]} says that it lost {event['lost']} steps, and trains {again} again")
    return wrong


def _generation(line: Line) -> Generation:
    return line["attempt"], line["generation"]
