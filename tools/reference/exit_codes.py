"""Exit codes, from the enumerations and docstrings of the programs."""

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
    Verdict.PASS: "every test passed or does not apply, and at least one passed",
    Verdict.FAIL: "a test failed or timed out",
    Verdict.MISCONFIGURED: "the setup needs an operator's fix; also wrong usage",
    Verdict.INCONCLUSIVE: "a test reached no conclusion, or the document could not be written",
}
_PREFLIGHT = (
    ("`report`", "the document was shown", "", "wrong usage", "a file is unreadable or no document"),
    (
        "`compare`, `baseline check`",
        "no regression",
        "a regression",
        "wrong usage",
        "nothing to compare; a file is unreadable",
    ),
    (
        "`baseline learn`, `forget`",
        "learned, forgotten",
        "",
        "wrong usage",
        "nothing was learned, the node is unknown, or the baseline cannot be written",
    ),
    ("`day`", "the file is written or shown", "", "wrong usage", "no device to test, or a file is unusable"),
)


def render_exit_codes_page() -> str:
    """docs/reference/exit-codes.md."""
    lines = render_head(
        "Exit codes", "Scripts may rely on these codes. A program ended by a signal exits with 128 plus its number."
    )
    lines += ["## healthctl", ""]
    lines += render_table(["code", "meaning"], [[str(int(code)), MEANINGS[code]] for code in Command])
    lines += [
        (
            "Commands that only list exit with 0 if they got an answer. `node check` follows Nagios: 0 OK, 1 WARNING, 2 CRITICAL, "
            "3 UNKNOWN (also wrong usage). Codes of single commands, from their help:"
        ),
        "",
        *render_table(["command", "exit codes"], _own_words()),
        "## preflight run",
        "",
    ]
    lines += render_table(
        ["code", "verdict", "meaning"],
        [[str(v.exit_code), v.value, _VERDICTS[v]] for v in sorted(Verdict, key=lambda v: v.exit_code)],
    )
    lines += ["Only 0 means that the node is fit. Only 1, with the document, means that it is not.", ""]
    lines += ["## Other preflight commands", "", *render_table(["command", "0", "1", "2", "3"], _PREFLIGHT)]
    lines += ["## healthd", "", render_prose(_sentence(healthd.main)), ""]
    lines += [
        "## A training rank",
        "",
        "The exit code of a rank tells the launcher what to do ([launching a job](../how-to/launch.md#how-ranks-end-and-what-follows)).",
        "",
    ]
    lines += render_table(["code", "meaning"], _listed(ranks))
    lines += [
        (
            "`healthctl launch` itself exits with 0, 93, or the code of the ranks; with 1 if a retry would not help; and with 75 if too "
            "few usable nodes are left and the job should be requeued."
        ),
        "",
    ]
    return join_lines(lines)


def _sentence(module: ModuleType) -> str:
    found = re.search(r"Exit codes: (.*)", inspect.getdoc(module) or "", re.DOTALL)
    assert found is not None, f"{module.__name__} documents no exit codes"  # noqa: S101 - a bug in this tool
    return found[1].split("\n\n")[0]


def _listed(module: ModuleType) -> list[list[str]]:
    rows = re.findall(r"^ {4}(\d+) +(.+)$", inspect.getdoc(module) or "", re.MULTILINE)
    assert [int(number) for number, _ in rows] == [int(code) for code in ranks.ExitCode]  # noqa: S101 - a bug in this tool
    return [[number, render_prose(meaning)] for number, meaning in rows]


def _own_words() -> list[list[str]]:
    """Exit codes that commands document in their help."""
    rows = []
    for path, command, _ in walk_commands("healthctl", cli):
        said = _ENDINGS.findall(f"{inspect.cleandoc(command.help or '')} {command.epilog or ''}")
        if said and path != "healthctl" and not path.startswith("healthctl preflight"):
            rows.append([render_code(path.removeprefix("healthctl ")), render_prose(" ".join(" ".join(said).split()))])
    return rows
