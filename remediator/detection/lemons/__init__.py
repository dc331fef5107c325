"""Lemons: nodes that fail jobs again and again although their checks pass. A fleet's record in, a judgement per node out. Pure.

Read in this order, which is also that of the data: `history` (the record), `blame` (incidents of nodes), `service` (the time
in which they could fail), `filter` (usual or lemon, day by day), `marks` (what else speaks against a node), `judgement`.
How it is meant: docs/explanation/lemons.md.
"""

from remediator.detection.lemons.failure_record import DAY_S, History, Kind
from remediator.detection.lemons.lemon_judgement import OUT, WATCH, Advice, Judged, Prices, judge
from remediator.detection.lemons.likelihood_marks import Mark

__all__ = ["DAY_S", "OUT", "WATCH", "Advice", "History", "Judged", "Kind", "Mark", "Prices", "judge"]
