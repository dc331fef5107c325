"""`healthctl analyze`: post-mortems of recorded files. Works offline; each analysis is imported when it runs."""

from __future__ import annotations

import click

from healthctl.cli.lazy_group import LazyGroup

# Analysis → where it lives, and its line in the help.
ANALYSES = {
    "hang": (
        "healthctl.analysis.hang_analysis:hang",
        "Which ranks keep a stuck job waiting, from flight recorder dumps.",
    ),
    "lemons": (
        "healthctl.analysis.lemon_analysis:lemons",
        "Which nodes fail again and again, from a record of node events.",
    ),
    "stragglers": ("healthctl.analysis.straggler_analysis:stragglers", "Which ranks slow a job down, from step times."),
}


class AnalysisGroup(LazyGroup):
    """Every analysis there is."""

    table = ANALYSES


@click.group(
    cls=AnalysisGroup, epilog="Examples: healthctl analyze hang /scratch/dumps; healthctl analyze lemons events.csv"
)
def analyze() -> None:
    """Find who is to blame, or nobody, in what a cluster recorded."""
