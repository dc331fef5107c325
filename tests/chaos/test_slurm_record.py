"""What slurmctld's log says of nodes, as changes of holds."""

from __future__ import annotations

from tests.chaos.world.slurm_holds import changes

LOG = """\
[2026-11-22T21:50:37.000] Running as primary controller
[2026-11-22T21:50:37.347] update_node: node n1 reason set to: gpu-healthd: inc-1 x
[2026-11-22T21:50:37.347] update_node: node n1 state set to DRAINED
[2026-11-22T21:50:37.439] update_node: node n1 reason set to: by ann: y
[2026-11-22T21:50:37.515] update_node: node n1 state set to IDLE
[2026-11-22T21:50:37.600] update_node: node n1 state set to IDLE
[2026-11-22T21:50:37.620] update_node: node n2 reason set to: gpu-healthd: inc-2 x
[2026-11-22T21:50:37.620] update_node: node n2 state set to DRAINING
"""


def test_holds_are_placed_renamed_and_lifted_in_the_logs_order() -> None:
    told = [(change["node"], change["held"], change["reason"]) for change in changes(LOG)]
    assert told == [
        ("n1", True, "gpu-healthd: inc-1 x"),
        ("n1", True, "by ann: y"),
        ("n1", False, ""),
        ("n2", True, "gpu-healthd: inc-2 x"),
    ]
    times = [change["at"] for change in changes(LOG)]
    assert times == sorted(times)
