"""Parses the text of ``scontrol`` and ``squeue``, whose formats have not changed since long before Slurm 22.05."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from remediator.model.node_location import NodeLocation
from remediator.schedulers.slurm.slurm_records import (
    EMPTY,
    Reservation,
    SlurmJob,
    SlurmNode,
    count_gres_gpus,
    split_state_words,
)
from vocabulary.text.slurm_hostlist import expand_hostlist

QUEUE_FORMAT = "%i %T %N"

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_REASON = re.compile(r"\sReason=(.*)", re.DOTALL)  # after all fields but Comment and Extra; may span lines
_STAMP = re.compile(r"\s?\[[^\s\]]*@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
_BEHIND = re.compile(r"\s(?:Comment|Extra|InstanceId|InstanceType)=.*", re.DOTALL)
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")
_BEGAN = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)
# A node has fifty fields, a cluster thousands of nodes, and they are read several times a minute: only needed fields.
_OF_NODE = re.compile(r"\s(NodeName|State|Gres|GresUsed|GresDrain|Partitions|ReservationName)=(\S*)")
_RESERVATION = re.compile(r"^ReservationName=", re.MULTILINE)


def parse_scontrol_nodes(text: str) -> list[SlurmNode]:
    """Parse ``scontrol show node --oneliner --details``. Records without a name are skipped.

    A record without a state has an empty one.
    """
    nodes = (_parse_node_record(f" NodeName={record}") for record in _RECORD.split(text)[1:])
    return [node for node in nodes if node.name]


def _parse_node_record(record: str) -> SlurmNode:
    found = _REASON.search(record)
    fields = _match_key_values(_OF_NODE, record[: found.start()] if found else record)
    reason, at = _parse_reason(found[1]) if found else ("", None)
    return SlurmNode(
        name=fields.get("NodeName", ""),
        state=split_state_words(fields.get("State", "")),
        reason=reason,
        reason_at=at,
        partitions=tuple(part for part in fields.get("Partitions", "").split(",") if part not in EMPTY),
        gpus=count_gres_gpus(fields.get("Gres", "")),
        gpus_used=count_gres_gpus(fields["GresUsed"]) if "GresUsed" in fields else -1,
        gpus_drained=count_gres_gpus(fields.get("GresDrain", "")),
        reservation=fields.get("ReservationName", ""),
    )


def _parse_reason(text: str) -> tuple[str, float | None]:
    """Return the reason without its stamps of user and time, and the last stamp's time. Lines are joined."""
    stamps = list(_STAMP.finditer(text))
    if not stamps:
        return collapse_white_space(text), None
    end = stamps[-1].end()
    return collapse_white_space(_STAMP.sub("", text[:end]) + _BEHIND.sub("", text[end:])), _parse_utc_stamp(
        stamps[-1][1]
    )


def _parse_utc_stamp(stamp: str) -> float | None:
    """Parse a time; Slurm's commands run with ``TZ=UTC`` (see `slurm_commands`)."""
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None


def _parse_key_values(line: str) -> dict[str, str]:
    """Return the ``Key=value`` pairs of a line."""
    return _match_key_values(_FIELD, line)


def _match_key_values(form: re.Pattern[str], line: str) -> dict[str, str]:
    """Match pairs; of repeated keys the first counts."""
    return dict(reversed(form.findall(line)))


def parse_squeue_lines(text: str) -> list[SlurmJob]:
    """Parse ``squeue --format='%i %T %N'``. Lines of another form are skipped."""
    jobs = []
    for line in text.splitlines():
        name, state, hosts = (*line.split(None, 2), "", "", "")[:3]
        if name and state:
            jobs.append(SlurmJob(name, split_state_words(state), tuple(expand_hostlist(hosts.strip()))))
    return jobs


def parse_scontrol_job(text: str) -> SlurmJob | None:
    """Parse the first record of ``scontrol show job NAME --oneliner``; None if there is none."""
    fields = _parse_key_values(text)
    if "JobId" not in fields:
        return None
    return SlurmJob(
        fields["JobId"],
        split_state_words(fields.get("JobState", "")),
        _expand_hosts(fields.get("NodeList", "")),
        _expand_hosts(fields.get("ExcNodeList", "")),
    )


def parse_scontrol_reservations(text: str) -> list[Reservation]:
    """Parse ``scontrol show reservation --oneliner``."""
    found = []
    for record in _RESERVATION.split(text)[1:]:
        fields = _parse_key_values(f"ReservationName={record}")
        flags = frozenset(flag for flag in fields.get("Flags", "").upper().split(",") if flag)
        ends_at = _parse_utc_stamp(fields.get("EndTime", ""))
        found.append(Reservation(fields["ReservationName"], _expand_hosts(fields.get("Nodes", "")), flags, ends_at))
    return [reservation for reservation in found if reservation.name]


def parse_scontrol_topology(text: str) -> dict[str, NodeLocation]:
    """Parse ``scontrol show topology``: each node's leaf switch, and of a block topology its block as the rack.

    A block is one NVLink domain, and in practice one rack.
    """
    found: dict[str, NodeLocation] = {}
    for line in text.splitlines():
        fields = _parse_key_values(line)
        switch = fields.get("SwitchName", "") if fields.get("Level") == "0" else ""
        rack = fields.get("BlockName", "")
        if switch or rack:
            for node in _expand_hosts(fields.get("Nodes", "")):
                found.setdefault(node, NodeLocation(switch=switch, rack=rack))
    return found


def parse_slurmctld_start(text: str) -> float | None:
    """Parse the start of slurmctld (UTC s) from ``scontrol show config``."""
    found = _BEGAN.search(text)
    return _parse_utc_stamp(found[1]) if found else None


def _expand_hosts(text: str) -> tuple[str, ...]:
    return () if text in EMPTY else tuple(expand_hostlist(text))


def collapse_white_space(text: str) -> str:
    """Replace every run of white space by one blank."""
    return " ".join(text.split())
