"""Checks shipped packages for known vulnerabilities: ``python -m tools.supply.audit PIP-AUDIT`` (make audit).

pip-audit says "no known vulnerabilities" also for packages that it skipped or does not know. So this program reads its report
and counts them as unknown. Exits with 0: all checked, none vulnerable; 1: some vulnerable; 2: incomplete.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tools.supply.lock_files import FOLDER, SHIPPED, read_locked_packages

OK, HOLES, NOT_ASKED = 0, 1, 2
ASK_S = 300


class Answer(NamedTuple):
    """The report: known vulnerabilities, packages without data, and pip-audit's reasons."""

    holes: tuple[str, ...]
    unasked: tuple[str, ...]
    why: str = ""


def read_report(report: Mapping[str, Any], wanted: set[str]) -> Answer:
    """Compare pip-audit's JSON with the names that it had to check."""
    told: list[Mapping[str, Any]] = report.get("dependencies", [])
    asked = {each["name"] for each in told if "skip_reason" not in each and "vulns" in each}
    holes = [
        f"{each['name']} {each.get('version', '')}: {hole['id']}, mended in {', '.join(hole.get('fix_versions', ())) or 'no version'}"
        for each in told
        for hole in each.get("vulns", ())
    ]
    why = next((str(each["skip_reason"]) for each in told if "skip_reason" in each), "")
    return Answer(tuple(holes), tuple(sorted(wanted - asked)), why)


def _asked(program: str, lock: str) -> Answer:
    wanted = {package.name for package in read_locked_packages(lock)}
    with tempfile.TemporaryDirectory(prefix="audit-") as place:
        report = Path(place) / "report.json"
        command = [program, "--disable-pip", "--require-hashes", "-r", str(FOLDER / f"{lock}.lock")]
        command += ["--format", "json", "--progress-spinner", "off", "--output", str(report)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=ASK_S, text=True, errors="replace")
            if report.exists():
                return read_report(json.loads(report.read_text()), wanted)
            why = done.stderr.strip().rpartition("\n")[2]
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = str(error)
        return Answer((), tuple(sorted(wanted)), why)  # no output means no result


def main() -> int:
    """Print the result for each lock file."""
    code = OK
    for lock in SHIPPED:
        answer = _asked(sys.argv[1], lock)
        for hole in answer.holes:
            print(f"requirements/{lock}.lock: {hole}")  # noqa: T201 - its answer
        if answer.unasked:
            some = ", ".join(answer.unasked[:5]) + (", ..." if len(answer.unasked) > 5 else "")
            words = f"could not ask about {len(answer.unasked)} packages ({some}); is the advisory database reachable from here?"
            words += f" pip-audit says: {answer.why}" if answer.why else ""
            print(f"requirements/{lock}.lock: error: {words}", file=sys.stderr)  # noqa: T201 - same
        if not answer.holes and not answer.unasked:
            print(f"requirements/{lock}.lock: no known holes")  # noqa: T201 - same
        code = HOLES if answer.holes else code or (NOT_ASKED if answer.unasked else OK)
    return code


if __name__ == "__main__":
    sys.exit(main())
