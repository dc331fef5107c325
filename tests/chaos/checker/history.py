"""One finished run, as it was written down from outside: files only, and nothing of the product."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]
OURS = "gpu-healthd:"  # how the reason of our hold begins in a scheduler


@dataclass
class History:
    """`journal`: what the run did and saw, by subject. `store`: the centre's tables. `steps`, `saves`: the ranks' own."""

    plan: Line = field(default_factory=dict)
    end: Line = field(default_factory=dict)
    journal: dict[str, list[Line]] = field(default_factory=dict)
    store: dict[str, list[Line]] = field(default_factory=dict)
    steps: list[Line] = field(default_factory=list)
    saves: dict[str, list[Line]] = field(default_factory=dict)
    tracebacks: dict[str, str] = field(default_factory=dict)  # by daemon, the error that it wrote last

    @classmethod
    def read(cls, place: Path) -> History:
        """From a run's folder."""
        return cls(
            plan=json.loads((place / "plan.json").read_text()),
            end=json.loads((place / "end.json").read_text()),
            journal={file.stem: _lines(file) for file in (place / "journal").glob("*.jsonl")},
            store={file.stem: _lines(file) for file in (place / "store").glob("*.jsonl")},
            steps=[line for file in sorted((place / "job").glob("steps-*.jsonl")) for line in _lines(file)],
            saves={
                folder.name: [json.loads(file.read_text()) for file in sorted(folder.glob("rank-*.json"))]
                for folder in (place / "job").glob("step-*")
            },
            tracebacks={
                file.stem: error
                for file in sorted([*place.glob("centre-*.log"), *place.glob("healthd-*.log")])
                if (error := traceback_in(file.read_text(errors="replace")))
            },
        )

    def told(self, subject: str) -> list[Line]:
        """The journal's lines on a subject."""
        return self.journal.get(subject, [])

    def rows(self, table: str) -> list[Line]:
        """A table's rows; the record itself is under `body`."""
        return self.store.get(table, [])

    def struck(self, *names: str, target: str = "") -> list[Line]:
        """Disasters of these names in the plan, of one target or of any."""
        found = [strike for strike in self.plan.get("strikes", []) if strike["disaster"] in names]
        return [strike for strike in found if not target or strike["target"] == target]

    def times(self, *names: str, target: str = "") -> list[tuple[float, float]]:
        """From when to when disasters of these names really lasted; without an end, for ever."""
        told = [
            line
            for line in self.told("disasters")
            if line["disaster"] in names and (not target or line["target"] == target)
        ]
        ends = {(line["disaster"], line["at_s"]): line["mono"] for line in told if line["event"] == "undone"}
        return [
            (line["mono"], ends.get((line["disaster"], line["at_s"]), float("inf")))
            for line in told
            if line["event"] == "struck"
        ]

    def commands(self, *words: str, node: str = "") -> list[Line]:
        """What operators said that begins with these words, on one node or on any; `until`: when the command had ended."""
        ends = {line["index"]: line["mono"] for line in self.told("commands_ended")}
        said = [line | {"until": ends.get(line.get("index"), line["mono"])} for line in self.told("commands")]
        found = [line for line in said if tuple(line["words"][: len(words)]) == words]
        return [line for line in found if not node or line["node"] == node]

    def holds(self) -> Iterator[tuple[Line, bool, bool]]:
        """The scheduler's record in its order: the line, and whether the hold was ours before it and is after."""
        ours: dict[str, bool] = {}
        for line in self.told("scheduler"):
            before = ours.get(line["node"], False)
            ours[line["node"]] = line["held"] and line["reason"].startswith(OURS)
            yield line, before, ours[line["node"]]

    def isolating(self) -> list[Line]:
        """Rows of the actions that took a node out: of each incident the first cordon, unless our hold was there already."""
        cordons = [row for row in self.rows("actions") if row["verb"] == "cordon"]
        first: dict[tuple[str, str], Line] = {}
        for row in sorted(cordons, key=lambda row: (row["planned_at"], row["id"])):
            first.setdefault((row["body"].get("incident", row["decision"]), row["node"]), row)
        return [row for row in first.values() if not self._held_before(row)]

    def _held_before(self, row: Line) -> bool:
        held = False
        for line, _, after in self.holds():
            if line["node"] == row["node"] and line["at"] < row["planned_at"]:
                held = after
        return held


def traceback_in(log: str) -> str:
    """The error of the last traceback in a log; empty if there is none."""
    _, found, after = log.rpartition("Traceback (most recent call last)")
    lines = after.splitlines()[1:]
    return next((line for line in lines if line and not line.startswith(" ")), "no word") if found else ""


def _lines(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text().splitlines() if line]
