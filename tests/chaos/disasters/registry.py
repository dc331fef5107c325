"""Every disaster, in the order in which plans draw them: a new one goes to the end, or old seeds mean something else."""

from __future__ import annotations

from tests.chaos.disasters import (
    api_server,
    bad_line,
    clock_step,
    corrupt_database,
    corrupt_outbox,
    database_crash,
    database_failover,
    full_disk,
    kill,
    kill_child,
    partition,
    read_only_disk,
    receiver,
    slurm_controller,
    suspend,
    swap_failure,
    trainer,
    trainer_node,
    trainer_pair,
)
from tests.chaos.disasters.contract import Disaster

DISASTERS: tuple[Disaster, ...] = (
    kill.DISASTER,
    kill_child.DISASTER,
    suspend.DISASTER,
    partition.DISASTER,
    bad_line.DISASTER,
    full_disk.DISASTER,
    read_only_disk.DISASTER,
    corrupt_outbox.DISASTER,
    clock_step.DISASTER,
    database_crash.DISASTER,
    api_server.DISASTER,
    receiver.DISASTER,
    trainer.DISASTER,
    slurm_controller.DISASTER,
    database_failover.DISASTER,
    corrupt_database.DISASTER,
    trainer_node.DISASTER,
    trainer_pair.DISASTER,
    swap_failure.DISASTER,
)
BY_NAME = {disaster.name: disaster for disaster in DISASTERS}
