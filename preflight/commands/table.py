"""The commands there are, behind ``python -m preflight`` and ``healthctl preflight``. Nothing is imported here."""

from __future__ import annotations

# Command → where it lives, and its line in the help: reading it there would import it.
COMMANDS = {
    "run": ("preflight.main:run", "Test this node."),
    "group": ("preflight.group.command:group", "Test many nodes together, one process on each."),
    "report": ("preflight.commands.report:report", "Show runs kept in files, as text, HTML or JUnit."),
    "compare": ("preflight.commands.compare:compare", "What changed from one run to another."),
    "baseline": ("preflight.commands.baseline:baseline", "What the nodes of a cluster reach: learn, show, check."),
    "goldens": ("preflight.commands.goldens:goldens", "Digests of arithmetic that devices agree on: record, show."),
    "tests": ("preflight.commands.tests:tests", "What each test proves, and the faults it can be tried with."),
    "admit": ("preflight.commands.admit:admit", "Let work come to a Kubernetes node that has passed."),
    "schema": ("preflight.commands.schema:schema", "The JSON Schema of a document."),
}
