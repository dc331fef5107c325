"""Parses the JSON of ``sinfo``, ``scontrol``, ``squeue`` and slurmrestd, from Slurm 22.05 to 26.05.

One parser for all versions' shapes: a state is a word or a list of words, with or without a separate list of flags; a
number is a number or an object that may say that it is not set; a list of names is text or a list; the nodes of a job
are in `nodes` or in `job_resources`, as text or within an object. The version is not needed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remediator.schedulers.slurm.scontrol_text import collapse_white_space
from remediator.schedulers.slurm.slurm_records import (
    EMPTY,
    Reservation,
    SlurmJob,
    SlurmNode,
    count_gres_gpus,
    split_state_words,
)
from vocabulary.text.slurm_hostlist import expand_hostlist

NUMBER_MAX = 2**64  # Slurm has none larger


class DocumentError(ValueError):
    """It is no such document, or reports an error; the text says what."""


def read_document_list(raw: bytes | str, key: str) -> list[dict[str, Any]]:
    """Return the objects under `key`: ``nodes``, ``jobs`` or ``reservations``.

    Raises:
        DocumentError: no JSON object, it has no such list, or it lists errors.
    """
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"not JSON ({error})") from error
    if not isinstance(document, dict):
        raise DocumentError("not a JSON object")
    if errors := list_document_errors(document):
        raise DocumentError("; ".join(errors))
    found = document.get(key)
    if not isinstance(found, list):
        raise DocumentError(f"it has no list {key}")
    return [item for item in found if isinstance(item, dict)]


def list_document_errors(document: Any) -> list[str]:
    """Return the entries under `errors`, a line each."""
    errors = document.get("errors") if isinstance(document, dict) else None
    found = []
    for error in errors if isinstance(errors, list) else ():
        said = (
            [_text_field(error.get(key)) for key in ("description", "error")]
            if isinstance(error, dict)
            else [_text_field(error)]
        )
        found.append(": ".join(dict.fromkeys(word for word in said if word)) or "an error without a description")
    return found


def parse_nodes_json(raw: bytes | str) -> list[SlurmNode]:
    """Return every node of an answer. Nodes without a name are skipped; unreadable values are empty.

    Raises:
        DocumentError: as `read_document_list`.
    """
    return [_parse_node(item) for item in read_document_list(raw, "nodes") if _text_field(item.get("name"))]


def _parse_node(item: dict[str, Any]) -> SlurmNode:
    used = item.get("gres_used")
    reason = collapse_white_space(_text_field(item.get("reason")))
    return SlurmNode(
        name=_text_field(item["name"]),
        state=_state_words_field(item.get("state")) | _state_words_field(item.get("state_flags")),
        reason=reason,
        reason_at=(_number_field(item.get("reason_changed_at")) or None) if reason else None,
        partitions=_names_field(item.get("partitions")),
        gpus=count_gres_gpus(_text_field(item.get("gres"))),
        gpus_used=count_gres_gpus(used) if isinstance(used, str) else -1,
        gpus_drained=count_gres_gpus(_text_field(item.get("gres_drained"))),
        reservation=_text_field(item.get("reservation")),
    )


def parse_jobs_json(raw: bytes | str) -> list[SlurmJob]:
    """Return every job of an answer, ended ones too. Jobs without a number are skipped.

    Raises:
        DocumentError: as `read_document_list`.
    """
    return [_parse_job(item) for item in read_document_list(raw, "jobs") if _number_field(item.get("job_id"))]


def _parse_job(item: dict[str, Any]) -> SlurmJob:
    return SlurmJob(
        name=_job_name(item),
        state=_state_words_field(item.get("job_state")),
        nodes=_hosts_field(item.get("nodes")) or _job_resource_nodes(item.get("job_resources")),
        excluded=_hosts_field(item.get("excluded_nodes")),
    )


def _job_name(item: dict[str, Any]) -> str:
    """Return the name as ``squeue`` prints it, so that a job has one name from every source."""
    array, task = _number_field(item.get("array_job_id")), _number_field(item.get("array_task_id"))
    het, offset = _number_field(item.get("het_job_id")), _number_field(item.get("het_job_offset"))
    if array and task is not None:
        return f"{array:.0f}_{task:.0f}"
    if het:
        return f"{het:.0f}+{offset or 0:.0f}"
    return f"{_number_field(item.get('job_id')):.0f}"


def _job_resource_nodes(found: Any) -> tuple[str, ...]:
    nodes = found.get("nodes") if isinstance(found, dict) else None
    return _hosts_field(nodes.get("list") if isinstance(nodes, dict) else nodes)


def parse_reservations_json(raw: bytes | str) -> list[Reservation]:
    """Return every reservation of an answer.

    Raises:
        DocumentError: as `read_document_list`.
    """
    return [
        Reservation(
            name,
            _hosts_field(item.get("node_list")),
            _state_words_field(item.get("flags")),
            _number_field(item.get("end_time")),
        )
        for item in read_document_list(raw, "reservations")
        if (name := _text_field(item.get("name")))
    ]


def _text_field(value: Any) -> str:
    return value if isinstance(value, str) and value not in EMPTY else ""


def _number_field(value: Any) -> float | None:
    """Return a plain number, or one from ``{"set", "infinite", "number"}``; None if unset or infinite."""
    if isinstance(value, dict):
        if value.get("set") is not True or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > NUMBER_MAX:
        return None
    return float(value)


def _state_words_field(value: Any) -> frozenset[str]:
    parts = value if isinstance(value, list) else [value]
    return frozenset(word for part in parts for word in split_state_words(_text_field(part).replace(",", "+")))


def _names_field(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else _text_field(value).split(",")
    return tuple(name for part in parts if (name := _text_field(part)))


def _hosts_field(value: Any) -> tuple[str, ...]:
    """Return host names from a list, or from a host list."""
    text = ",".join(_names_field(value)) if isinstance(value, list) else _text_field(value)
    return tuple(expand_hostlist(text))
