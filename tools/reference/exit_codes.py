"""How programs end, from the enumerations and docstrings that they end by."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import healthd.main
from healthctl.exit_codes import MEANINGS
from healthctl.exit_codes import Exit as Command
from healthctl.main import cli
from healthd.trainer import exit_codes as ranks
from preflight.results import Verdict
from tools.reference.commands import walk_commands
from tools.reference.markdown import join_lines, render_code, render_head, render_prose, render_table

_ENDINGS = re.compile(r"Exit codes: [^.]+\.|Ends with [^.]+\.", re.DOTALL)
_VERDICTS = {
    Verdict.PASS: "every test passed or does not apply here, and at least one passed",
    Verdict.FAIL: "a test failed, or did not end in time",
    Verdict.MISCONFIGURED: "something is missing that a person must put right; also wrong usage",
    Verdict.INCONCLUSIVE: "a test came to no conclusion, or the document could not be written",
}
_PREFLIGHT = (
    ("`report`", "shown, whatever it says", "", "wrong usage", "a file cannot be read or is no document"),
    (
        "`compare`, `baseline check`",
        "nothing is worse",
        "something is worse",
        "wrong usage",
        "nothing to compare; a file cannot be read",
    ),
    (
        "`baseline learn`, `forget`",
        "learned, forgotten",
        "",
        "wrong usage",
        "nothing was learned, a node is not known, or it cannot be written",
    ),
)


def render_exit_codes_page() -> str:
    """docs/reference/exit-codes.md."""
    lines = render_head("Exit codes", "What a script may rely on. A signal ends a program with 128 and its number.")
    lines += ["## healthctl", ""]
    lines += render_table(["code", "meaning"], [[str(int(code)), MEANINGS[code]] for code in Command])
    lines += [
        (
            "Commands that only list end with 0 when they got an answer, whatever it says. `node check` ends as Nagios wants it: "
            "0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (also wrong usage). What a code means for a command, in the words of its help:"
        ),
        "",
        *render_table(["command", "how it ends"], _own_words()),
        "## preflight run",
        "",
    ]
    lines += render_table(
        ["code", "verdict", "meaning"],
        [[str(v.exit_code), v.value, _VERDICTS[v]] for v in sorted(Verdict, key=lambda v: v.exit_code)],
    )
    lines += ["Only 0 says that the node is fit, and only 1, with the document, that it is not.", ""]
    lines += ["## Other commands of preflight", "", *render_table(["command", "0", "1", "2", "3"], _PREFLIGHT)]
    lines += ["## healthd", "", render_prose(_sentence(healthd.main)), ""]
    lines += [
        "## A training rank",
        "",
        "What a rank tells its launcher by how it ends. What follows: [launching a job](../how-to/launch.md#how-ranks-end-and-what-follows).",
        "",
    ]
    lines += render_table(["code", "meaning"], _listed(ranks))
    lines += [
        (
            "`healthctl launch` itself ends with 0, 93, or the code of the ranks; with 1 where another try would not help; and with 75 "
            "where too few usable nodes are left and the job should be queued again."
        ),
        "",
    ]
    return join_lines(lines)


def _sentence(module: ModuleType) -> str:
    found = re.search(r"Exit codes: (.*)", inspect.getdoc(module) or "", re.DOTALL)
    assert found is not None, f"{module.__name__} does not say its exit codes"  # noqa: S101 - a mistake of ours
    return found[1].split("\n\n")[0]


def _listed(module: ModuleType) -> list[list[str]]:
    rows = re.findall(r"^ {4}(\d+) +(.+)$", inspect.getdoc(module) or "", re.MULTILINE)
    assert [int(number) for number, _ in rows] == [int(code) for code in ranks.ExitCode]  # noqa: S101 - a mistake of ours
    return [[number, render_prose(meaning)] for number, meaning in rows]


def _own_words() -> list[list[str]]:
    """What commands say themselves of how they end."""
    rows = []
    for path, command, _ in walk_commands("healthctl", cli):
        said = _ENDINGS.findall(f"{inspect.cleandoc(command.help or '')} {command.epilog or ''}")
        if said and path != "healthctl" and not path.startswith("healthctl preflight"):
            rows.append([render_code(path.removeprefix("healthctl ")), render_prose(" ".join(" ".join(said).split()))])
    return rows
