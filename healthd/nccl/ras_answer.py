"""Parses the JSON status that a process with NCCL 2.28.7 or later reports about its whole job. Pure.

Text answers, the only form before 2.28.7, are no input: they hold no counts of communicators whose ranks agree, so they
cannot show that a job has stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

RANKS_MAX = 200_000  # of all communicators together
KINDS_MAX = 64  # of collectives; NCCL knows a dozen at most
NAME_CHARS_MAX = 64
COUNT_MAX = 2**63
INITIALISED = 0  # an ncclResult_t: success

_NO_COMMA = re.compile(rb'("nvml_dev":\s*-?\d+)(\s+"status")')  # of 2.28.9's missing ranks
_NAME = re.compile(r"[0-9A-Za-z.:%_-]+")


class RasAnswerError(ValueError):
    """The answer cannot be used."""


class RasProcess(NamedTuple):
    """The owner of one rank: a GPU of a process. The pid is that of the process's own namespace."""

    host: str
    pid: int
    gpu: int


class RankCounts(NamedTuple):
    """One rank of a communicator that answered. `counts`: launched collectives of each kind, by the kind's name."""

    rank: int
    process: RasProcess
    running: bool  # initialised, and neither finalised, destroyed nor aborted
    counts: tuple[int, ...]


class MissingRank(NamedTuple):
    """One rank without counts. It is silent if its process does not answer; otherwise it has left the communicator."""

    rank: int
    process: RasProcess
    silent: bool


class Communicator(NamedTuple):
    """One communicator of the job."""

    name: str
    ranks: tuple[RankCounts, ...]
    missing: tuple[MissingRank, ...]

    @property
    def size(self) -> int:
        """The number of its ranks."""
        return len(self.ranks) + len(self.missing)

    @property
    def members(self) -> list[tuple[int, RasProcess]]:
        """All its ranks, by number."""
        return [
            *((each.rank, each.process) for each in self.ranks),
            *((each.rank, each.process) for each in self.missing),
        ]


class RasAnswer(NamedTuple):
    """The state of one job."""

    version: str
    communicators: tuple[Communicator, ...]


def parse_ras_answer(data: bytes) -> RasAnswer:
    """Parse one answer.

    Raises:
        RasAnswerError: it is not JSON of the known form, or has more ranks or kinds than any job.
    """
    try:
        try:
            document = json.loads(data)
        except ValueError:
            document = json.loads(_NO_COMMA.sub(rb"\1,\2", data))
        communicators = tuple(_parse_communicator(each) for each in document["communicators"])
        version = _parse_name(document.get("nccl_version", ""))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RasAnswerError(f"not a RAS status: {type(error).__name__}: {error}"[:200]) from None
    if sum(each.size for each in communicators) > RANKS_MAX:
        raise RasAnswerError(f"more than {RANKS_MAX} ranks")
    return RasAnswer(version, communicators)


def _parse_communicator(document: Mapping[str, Any]) -> Communicator:
    name = f"{_parse_name(document['hash'])}:{_parse_name(document.get('secondary_hash', ''))}"
    ranks = {rank.rank: rank for rank in map(_parse_rank, document["ranks"])}
    missing = {rank.rank: rank for rank in map(_parse_missing_rank, document.get("missing_ranks", ()))}
    kinds = {len(rank.counts) for rank in ranks.values()}
    if len(kinds) > 1 or ranks.keys() & missing.keys():
        raise ValueError(f"communicator {name} contradicts itself")
    return Communicator(name, tuple(ranks[n] for n in sorted(ranks)), tuple(missing[n] for n in sorted(missing)))


def _parse_rank(document: Mapping[str, Any]) -> RankCounts:
    status, counts = document["status"], document["collective_counts"]
    if len(counts) > KINDS_MAX:
        raise ValueError("too many kinds of collectives")
    ended = any(_parse_flag(status, key) for key in ("finalize_called", "destroy_flag", "abort_flag"))
    running = not ended and _parse_number(status["init_state"]) == INITIALISED
    return RankCounts(
        rank=_parse_number(document["rank"]),
        process=_parse_process(document),
        running=running,
        counts=tuple(_parse_number(counts[kind]) for kind in sorted(counts)),
    )


def _parse_missing_rank(document: Mapping[str, Any]) -> MissingRank:
    status = document["status"]
    silent = _parse_flag(status, "unresponsive") or _parse_flag(status, "considered_dead")
    return MissingRank(_parse_number(document["rank"]), _parse_process(document), silent)


def _parse_process(document: Mapping[str, Any]) -> RasProcess:
    gpu = document.get("nvml_dev", -1)
    return RasProcess(
        _parse_name(document["host"]), _parse_number(document["pid"], least=-1), _parse_number(gpu, least=-1)
    )


def _parse_number(value: object, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value < COUNT_MAX:
        raise ValueError("no valid number")
    return value


def _parse_flag(status: Mapping[str, Any], key: str) -> bool:
    value = status.get(key, False)
    if type(value) is not bool:
        raise ValueError(f"{key} is neither true nor false")
    return value


def _parse_name(value: object) -> str:
    """Any user can write this answer: only names of hosts, addresses and numbers pass."""
    if not isinstance(value, str) or len(value) > NAME_CHARS_MAX or not _NAME.fullmatch(value or "-"):
        raise ValueError("no valid name")
    return value
