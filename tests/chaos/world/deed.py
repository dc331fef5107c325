"""What a node does in place of a preflight, a reset and a new start: writes down that it was done. Standard library only.

deed.py PLACE NODE WHAT VERDICT LEVEL
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Begin, take a moment, end; whoever is killed meanwhile leaves only the beginning."""
    place, node, what, verdict, detail = sys.argv[1:6]
    said = {"node": node, "what": what, "detail": detail, "pid": os.getpid()}
    _write(place, {**said, "event": "begun"})
    time.sleep(0.4)
    _write(place, {**said, "event": "ended", "verdict": verdict})
    if what == "preflight":
        print(json.dumps({"verdict": verdict, "complete": True, "reason": "as the plan of this run has it"}))
        raise SystemExit(0 if verdict == "pass" else 1)


def _write(place: str, said: dict[str, object]) -> None:
    line = json.dumps({"at": time.time(), "mono": time.monotonic(), **said})
    with open(f"{place}/deeds.jsonl", "a") as file:  # noqa: PTH123 - pathlib would double this program's start
        file.write(f"{line}\n")


if __name__ == "__main__":
    main()
