"""The table of commands for ``python -m preflight`` and ``healthctl preflight``. Imports nothing."""

from __future__ import annotations

# Command → ("module:name", one-line help). The help stands here so that `--help` imports no command.
COMMANDS = {
    "run": ("preflight.main:run", "Test this node."),
    "group": ("preflight.group.group_command:group", "Test many nodes together, one process on each."),
    "report": ("preflight.commands.report_command:report", "Show runs kept in files, as text, HTML or JUnit."),
    "compare": ("preflight.commands.compare_command:compare", "What changed from one run to another."),
    "baseline": (
        "preflight.commands.baseline_command:baseline",
        "What the nodes of a cluster reach: learn, show, check.",
    ),
    "goldens": (
        "preflight.commands.goldens_command:goldens",
        "Digests of arithmetic that devices agree on: record, show.",
    ),
    "tests": ("preflight.commands.tests_command:tests", "What each test proves, and the faults it can be tried with."),
    "admit": ("preflight.commands.admit_command:admit", "Let work come to a Kubernetes node that has passed."),
    "schema": ("preflight.commands.schema_command:schema", "The JSON Schema of a document."),
}
