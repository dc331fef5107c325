"""Lemons: nodes that fail jobs repeatedly although their checks pass. Pure: history in, a judgement per node out.

Read the modules in the order of the data: `failure_record` (input), `incident_attribution` (incidents of nodes),
`service_time` (time in which a node could fail), `lemon_filter` (usual node or lemon, day by day), `likelihood_marks`
(further evidence against a node), `lemon_judgement`. Background: docs/explanation/lemons.md.
"""

from remediator.detection.lemons.failure_record import DAY_S, History, Kind
from remediator.detection.lemons.lemon_judgement import OUT, WATCH, Advice, Judged, LemonCosts, judge_lemons
from remediator.detection.lemons.likelihood_marks import Mark

__all__ = ["DAY_S", "OUT", "WATCH", "Advice", "History", "Judged", "Kind", "LemonCosts", "Mark", "judge_lemons"]
