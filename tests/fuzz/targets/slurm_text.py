"""What scontrol and squeue print; a job's name and a drain's reason are anybody's words."""

from __future__ import annotations

from remediator.schedulers.slurm import scontrol_text as slurm
from tests.fuzz.target import Target, text


def judge(data: bytes) -> None:
    """Never an error; every record has a name."""
    said = text(data)
    named = [
        *slurm.parse_scontrol_nodes(said),
        *slurm.parse_squeue_lines(said),
        *slurm.parse_scontrol_reservations(said),
    ]
    if not all(record.name for record in named):
        raise AssertionError("a record without a name")
    slurm.parse_scontrol_job(said)
    slurm.parse_scontrol_topology(said)
    slurm.parse_slurmctld_start(said)


TARGET = Target(
    judge,
    (
        b"NodeName=n1 Arch=x86_64 Gres=gpu:8 State=IDLE+DRAIN Partitions=p,q Reason=bad NodeName=n2 [root@2026-11-22T10:00:00]\n",
        b"NodeName=n1 State=DOWN* Reason=a\n   b [slurm@2026-99-22T10:00:00] Comment=x GresUsed=gpu:2(IDX:0-1)\n",
        b"12_[1-9%2] RUNNING n[1-3]\n7+1 COMPLETING n4\n",
        b"JobId=7 JobState=RUNNING NodeList=n[1-2] ExcNodeList=(null)\n",
        b"ReservationName=r Nodes=n[1-2] Flags=MAINT,SPEC_NODES EndTime=2026-11-22T10:00:00\n",
        b"SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]\nBlockName=b1 BlockIndex=0 Nodes=n[1-4]\n",
        b"BOOT_TIME               = 0001-01-01T00:00:00\n",
    ),
)
