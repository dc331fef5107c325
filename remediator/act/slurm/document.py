"""What ``sinfo``, ``scontrol`` and ``squeue --json`` and slurmrestd answer, from Slurm 22.05 to 26.05.

One reader for all shapes: a state is a word, or a list of words, with or without a list of flags beside it; a number is a
number, or an object that may say that it is not set; a list of names is text or a list; the nodes of a job stand in `nodes`, or
in `job_resources`, as text or within an object. Which version wrote it does not matter, and is not asked.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remediator.act.slurm.hostlist import expand_hostlist
from remediator.act.slurm.records import EMPTY, Reservation, SlurmJob, SlurmNode, gpus_in, words_of
from remediator.act.slurm.text import one_line

NUMBER_MAX = 2**64  # Slurm has none larger


class DocumentError(ValueError):
    """It is no such document, or Slurm says in it that something went wrong; the text says what."""


def read(raw: bytes | str, key: str) -> list[dict[str, Any]]:
    """The objects under `key`: ``nodes``, ``jobs`` or ``reservations``.

    Raises:
        DocumentError: no JSON object, it has no such list, or it lists errors.
    """
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"no JSON ({error})") from error
    if not isinstance(document, dict):
        raise DocumentError("no JSON object")
    if errors := complaints(document):
        raise DocumentError("; ".join(errors))
    found = document.get(key)
    if not isinstance(found, list):
        raise DocumentError(f"no list of {key} in it")
    return [item for item in found if isinstance(item, dict)]


def complaints(document: Any) -> list[str]:
    """What an answer lists under `errors`, a line each."""
    errors = document.get("errors") if isinstance(document, dict) else None
    found = []
    for error in errors if isinstance(errors, list) else ():
        said = (
            [_text(error.get(key)) for key in ("description", "error")] if isinstance(error, dict) else [_text(error)]
        )
        found.append(": ".join(dict.fromkeys(word for word in said if word)) or "an error without a word")
    return found


def parse_nodes(raw: bytes | str) -> list[SlurmNode]:
    """Every node of an answer. Nodes without a name are skipped; what cannot be read of one is empty.

    Raises:
        DocumentError: as `read`.
    """
    return [_node(item) for item in read(raw, "nodes") if _text(item.get("name"))]


def _node(item: dict[str, Any]) -> SlurmNode:
    used = item.get("gres_used")
    reason = one_line(_text(item.get("reason")))
    return SlurmNode(
        name=_text(item["name"]),
        state=_words(item.get("state")) | _words(item.get("state_flags")),
        reason=reason,
        reason_at=(_number(item.get("reason_changed_at")) or None) if reason else None,
        partitions=_names(item.get("partitions")),
        gpus=gpus_in(_text(item.get("gres"))),
        gpus_used=gpus_in(used) if isinstance(used, str) else -1,
        gpus_drained=gpus_in(_text(item.get("gres_drained"))),
        reservation=_text(item.get("reservation")),
    )


def parse_jobs(raw: bytes | str) -> list[SlurmJob]:
    """Every job of an answer, ended ones too. Jobs without a number are skipped.

    Raises:
        DocumentError: as `read`.
    """
    return [_job(item) for item in read(raw, "jobs") if _number(item.get("job_id"))]


def _job(item: dict[str, Any]) -> SlurmJob:
    return SlurmJob(
        name=_job_name(item),
        state=_words(item.get("job_state")),
        nodes=_hosts(item.get("nodes")) or _nodes_of_resources(item.get("job_resources")),
        excluded=_hosts(item.get("excluded_nodes")),
    )


def _job_name(item: dict[str, Any]) -> str:
    """As ``squeue`` prints it, so that one job has one name whichever way it came."""
    array, task = _number(item.get("array_job_id")), _number(item.get("array_task_id"))
    het, offset = _number(item.get("het_job_id")), _number(item.get("het_job_offset"))
    if array and task is not None:
        return f"{array:.0f}_{task:.0f}"
    if het:
        return f"{het:.0f}+{offset or 0:.0f}"
    return f"{_number(item.get('job_id')):.0f}"


def _nodes_of_resources(found: Any) -> tuple[str, ...]:
    nodes = found.get("nodes") if isinstance(found, dict) else None
    return _hosts(nodes.get("list") if isinstance(nodes, dict) else nodes)


def parse_reservations(raw: bytes | str) -> list[Reservation]:
    """Every reservation of an answer.

    Raises:
        DocumentError: as `read`.
    """
    return [
        Reservation(
            name,
            _hosts(item.get("node_list")),
            _words(item.get("flags")),
            _number(item.get("end_time")),
        )
        for item in read(raw, "reservations")
        if (name := _text(item.get("name")))
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value not in EMPTY else ""


def _number(value: Any) -> float | None:
    """A number as it is, or as an object ``{"set", "infinite", "number"}``; None for what is not set or has no end."""
    if isinstance(value, dict):
        if value.get("set") is not True or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > NUMBER_MAX:
        return None
    return float(value)


def _words(value: Any) -> frozenset[str]:
    parts = value if isinstance(value, list) else [value]
    return frozenset(word for part in parts for word in words_of(_text(part).replace(",", "+")))


def _names(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else _text(value).split(",")
    return tuple(name for part in parts if (name := _text(part)))


def _hosts(value: Any) -> tuple[str, ...]:
    """Host names, from a list of them or one host list."""
    text = ",".join(_names(value)) if isinstance(value, list) else _text(value)
    return tuple(expand_hostlist(text))
