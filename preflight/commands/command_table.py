"""The table of commands for ``python -m preflight`` and ``healthctl preflight``. Imports nothing."""

from __future__ import annotations

# Command → ("module:name", one-line help). The help stands here so that `--help` imports no command.
COMMANDS = {
    "run": ("preflight.main:run", "Test this node."),
    "idle": ("preflight.commands.idle_command:idle", "Test this node while it is idle; end once work comes."),
    "group": ("preflight.group.group_command:group", "Test many nodes together, one process on each."),
    "report": ("preflight.commands.report_command:report", "Show saved runs as text, HTML or JUnit."),
    "compare": ("preflight.commands.compare_command:compare", "Compare two runs."),
    "baseline": (
        "preflight.commands.baseline_command:baseline",
        "Learn, show and check the typical figures of a cluster.",
    ),
    "goldens": (
        "preflight.commands.goldens_command:goldens",
        "Record and show golden digests of arithmetic.",
    ),
    "day": (
        "preflight.commands.day_command:day",
        "Measure a platform in 15 minutes, into one file to send back.",
    ),
    "tests": ("preflight.commands.tests_command:tests", "List the tests, their purpose and their injectable faults."),
    "admit": (
        "preflight.commands.admit_command:admit",
        "Remove the startup taint from a Kubernetes node that has passed.",
    ),
    "compile": (
        "preflight.commands.compile_command:compile_kernels",
        "Compile the GPU kernels of the tests ahead of time.",
    ),
    "schema": ("preflight.commands.schema_command:schema", "Print the JSON Schema of a document."),
}
