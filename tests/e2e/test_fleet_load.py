"""The load's generator in small, against a real remediator: it works, its books are right, and nothing is lost over a kill -9."""

from __future__ import annotations

from pathlib import Path

from bench.fleet import store, table
from bench.fleet.__main__ import measure_fleet
from bench.fleet.controller_replicas import free_ports
from bench.fleet.options import Options

NODES, BURST = 50, 20


def test_a_small_fleet_loses_nothing_when_its_leader_dies(tmp_path: Path) -> None:
    options = Options(
        nodes=NODES,
        seconds=4.0,
        place=str(tmp_path),
        ports=free_ports(1),
        interval_s=1.0,
        polls=NODES,
        faults_per_day=20_000.0,
        burst=BURST,
        burst_at=1.0,
        kill_at=2.0,
        slow=1,
        malformed=2,
    )
    with store.run_database("sqlite", tmp_path) as url:
        run = measure_fleet(options, url, 0.0)
    assert run.accounts.good, table.build_result_rows(run)[-1]
    assert len(run.tally.findings) >= BURST
    assert len(run.took["report"].took) + len(run.took["news"].took) >= NODES
    answers = {told.partition(": ")[2] for told in run.tally.malformed}
    assert not answers & {"200", "500"}, run.tally.malformed
    assert answers & {"400", "401", "403", "404", "431"}, run.tally.malformed
