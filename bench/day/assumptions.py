"""What a site's clock and people are here. The durations of people, hardware and batch system are cut by one factor; the product's own are not."""

from __future__ import annotations

import msgspec

SCALE = 20.0
MINUTES_OF_A_DAY = 10.0  # so many minutes hold the faults of a day


class Assumption(msgspec.Struct, frozen=True):
    """A duration in the field (s), and where the figure comes from. `here` is what it is in a run (s)."""

    what: str
    field_s: float
    source: str

    @property
    def here(self) -> float:
        """Seconds in a run."""
        return self.field_s / SCALE


STEP = Assumption("a training step", 5.0, "ours; steps of large models take some seconds")
START = Assumption("start of an attempt until its first step", 300.0, "published: 5 (2 to 20) min")
CHECKPOINT = Assumption("between two periodic checkpoints", 1800.0, "published: 5 to 60 min")
CHECKPOINT_PAUSE = Assumption("training stands still for a checkpoint", 30.0, "published: 10 s to 5 min")
COLLECTIVE = Assumption("a stuck collective is given up", 600.0, "NCCL's default in PyTorch")
PERSON = Assumption("a person looks at a failed job, a held node or an alert", 1800.0, "ours")
REPAIR = Assumption("a part is replaced, once a person has looked", 7200.0, "published: 1 to 3 h")
REBOOT = Assumption("a node starts anew", 600.0, "ours, as in the simulator")
HEALTH_CHECK = Assumption("HealthCheckInterval of the baseline's Slurm", 300.0, "usual in sites' slurm.conf")
SLURMD = Assumption("SlurmdTimeout", 300.0, "Slurm's default")
NOTICE = Assumption("from a fault that lets a GPU go on until it stops", 600.0, "ours, as in the simulator")
PASSING = Assumption("how long a slowness lasts that passes by itself", 600.0, "Greyhound: 10 min on average")
LEAVE = Assumption("patience with a rank that stays when others leave", 100.0, "ours; 5 s here")
RETURN = Assumption("from the loss of a node until its job asks whether it may return", 100.0, "ours; 5 s here")

ALL = (
    STEP,
    START,
    CHECKPOINT,
    CHECKPOINT_PAUSE,
    COLLECTIVE,
    PERSON,
    REPAIR,
    REBOOT,
    HEALTH_CHECK,
    SLURMD,
    NOTICE,
    PASSING,
    LEAVE,
    RETURN,
)
