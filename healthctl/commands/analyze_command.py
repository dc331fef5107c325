"""`healthctl analyze`: offline analysis of recorded files; each analysis is imported when it runs."""

from __future__ import annotations

import click

from healthctl.cli.lazy_group import LazyGroup

# Analysis → ("module:name", one-line help).
ANALYSES = {
    "hang": (
        "healthctl.analysis.hang_analysis:hang",
        "Find the ranks that block a stuck job, from flight recorder dumps.",
    ),
    "lemons": (
        "healthctl.analysis.lemon_analysis:lemons",
        "Find nodes that fail repeatedly, from a record of node events.",
    ),
    "stragglers": (
        "healthctl.analysis.straggler_analysis:stragglers",
        "Find the ranks that slow a job down, from step times.",
    ),
}


class AnalysisGroup(LazyGroup):
    """The command group of the analyses."""

    table = ANALYSES


@click.group(
    cls=AnalysisGroup, epilog="Examples: healthctl analyze hang /scratch/dumps; healthctl analyze lemons events.csv"
)
def analyze() -> None:
    """Analyze recorded files for stuck ranks, failing nodes and stragglers."""
