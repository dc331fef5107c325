"""The lines that ``scontrol`` and ``squeue`` print, in formats that have not changed since Slurm 22.05 and long before."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from remediator.act.slurm.hostlist import expand_hostlist
from remediator.act.slurm.records import EMPTY, Reservation, SlurmJob, SlurmNode, gpus_in, words_of
from remediator.model.places import Places

QUEUE_FORMAT = "%i %T %N"

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_REASON = re.compile(r"\sReason=(.*)", re.DOTALL)  # behind every other field but Comment and Extra; may go over lines
_STAMP = re.compile(r"\s?\[[^\s\]]*@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
_BEHIND = re.compile(r"\s(?:Comment|Extra|InstanceId|InstanceType)=.*", re.DOTALL)
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")
_BEGAN = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)
# A node has fifty fields, a cluster thousands of nodes, and they are read several times a minute: only what is used.
_OF_NODE = re.compile(r"\s(NodeName|State|Gres|GresUsed|GresDrain|Partitions|ReservationName)=(\S*)")
_RESERVATION = re.compile(r"^ReservationName=", re.MULTILINE)


def parse_nodes(text: str) -> list[SlurmNode]:
    """Read ``scontrol show node --oneliner --details``. Records without a name are skipped.

    A record without a state has an empty one.
    """
    nodes = (_node(f" NodeName={record}") for record in _RECORD.split(text)[1:])
    return [node for node in nodes if node.name]


def _node(record: str) -> SlurmNode:
    found = _REASON.search(record)
    fields = _pairs(_OF_NODE, record[: found.start()] if found else record)
    reason, at = _reason(found[1]) if found else ("", None)
    return SlurmNode(
        name=fields.get("NodeName", ""),
        state=words_of(fields.get("State", "")),
        reason=reason,
        reason_at=at,
        partitions=tuple(part for part in fields.get("Partitions", "").split(",") if part not in EMPTY),
        gpus=gpus_in(fields.get("Gres", "")),
        gpus_used=gpus_in(fields["GresUsed"]) if "GresUsed" in fields else -1,
        gpus_drained=gpus_in(fields.get("GresDrain", "")),
        reservation=fields.get("ReservationName", ""),
    )


def _reason(text: str) -> tuple[str, float | None]:
    """The reason without the stamps of who and when, and the last stamp's time. Lines of one reason become one."""
    stamps = list(_STAMP.finditer(text))
    if not stamps:
        return one_line(text), None
    end = stamps[-1].end()
    return one_line(_STAMP.sub("", text[:end]) + _BEHIND.sub("", text[end:])), _utc(stamps[-1][1])


def _utc(stamp: str) -> float | None:
    """Slurm's commands run with ``TZ=UTC`` (see `commands`)."""
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None


def _fields(line: str) -> dict[str, str]:
    """``Key=value`` pairs of a line."""
    return _pairs(_FIELD, line)


def _pairs(form: re.Pattern[str], line: str) -> dict[str, str]:
    """Of a key that stands there twice the first counts."""
    return dict(reversed(form.findall(line)))


def parse_queue(text: str) -> list[SlurmJob]:
    """Read ``squeue --format='%i %T %N'``. Lines of another shape are skipped."""
    jobs = []
    for line in text.splitlines():
        name, state, hosts = (*line.split(None, 2), "", "", "")[:3]
        if name and state:
            jobs.append(SlurmJob(name, words_of(state), tuple(expand_hostlist(hosts.strip()))))
    return jobs


def parse_job(text: str) -> SlurmJob | None:
    """Read the first record of ``scontrol show job NAME --oneliner``; None if there is none."""
    fields = _fields(text)
    if "JobId" not in fields:
        return None
    return SlurmJob(
        fields["JobId"],
        words_of(fields.get("JobState", "")),
        _hosts(fields.get("NodeList", "")),
        _hosts(fields.get("ExcNodeList", "")),
    )


def parse_reservations(text: str) -> list[Reservation]:
    """Read ``scontrol show reservation --oneliner``."""
    found = []
    for record in _RESERVATION.split(text)[1:]:
        fields = _fields(f"ReservationName={record}")
        flags = frozenset(flag for flag in fields.get("Flags", "").upper().split(",") if flag)
        ends_at = _utc(fields.get("EndTime", ""))
        found.append(Reservation(fields["ReservationName"], _hosts(fields.get("Nodes", "")), flags, ends_at))
    return [reservation for reservation in found if reservation.name]


def parse_topology(text: str) -> dict[str, Places]:
    """Read ``scontrol show topology``: each node's leaf switch, and of a block topology its block as the rack.

    A block is one domain of NVLink, and in practice one rack.
    """
    found: dict[str, Places] = {}
    for line in text.splitlines():
        fields = _fields(line)
        switch = fields.get("SwitchName", "") if fields.get("Level") == "0" else ""
        rack = fields.get("BlockName", "")
        if switch or rack:
            for node in _hosts(fields.get("Nodes", "")):
                found.setdefault(node, Places(switch=switch, rack=rack))
    return found


def parse_began(text: str) -> float | None:
    """Read when slurmctld began (UTC s) from ``scontrol show config``."""
    found = _BEGAN.search(text)
    return _utc(found[1]) if found else None


def _hosts(text: str) -> tuple[str, ...]:
    return () if text in EMPTY else tuple(expand_hostlist(text))


def one_line(text: str) -> str:
    """Every run of white space as one blank."""
    return " ".join(text.split())
