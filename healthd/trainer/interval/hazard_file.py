"""The file in which the node daemon publishes a job's hazard to its ranks, beside the beacon pages."""

from __future__ import annotations

import json
import os
import re
import stat
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from vocabulary.atomic_file import replace_file

VERSION = 1
BYTES_MAX = 4096
PER_S_MIN, PER_S_MAX = (
    1e-12,
    1.0,
)  # from one failure in 30 000 years to one a second; other values are rejected


class PublishedHazard(NamedTuple):
    """Failures per second of one job as the controller estimates it; valid until `valid_until` (UTC seconds)."""

    per_s: float
    nodes: int
    valid_until: float


def hazard_path(directory: str, job: str) -> Path:
    """Return the path of a job's hazard. Two jobs never share one: the hash distinguishes equal cleaned names."""
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", job)[:100]
    return Path(directory) / f"{clean}.{sha256(job.encode(errors='replace')).hexdigest()[:12]}.hazard"


def write_hazard(directory: str, job: str, hazard: PublishedHazard) -> Path:
    """Write or replace the file.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    path = hazard_path(directory, job)
    content = {"version": VERSION, "job": job, **hazard._asdict()}
    replace_file(path, json.dumps(content).encode(), mode=0o644)  # the job runs as any user, whatever the umask here
    return path


def read_hazard(directory: str, job: str, now: float) -> PublishedHazard | None:
    """Return a job's hazard if root (or this user) wrote a complete and valid file; never raises."""
    try:
        descriptor = os.open(hazard_path(directory, job), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        trusted = stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
        content = os.read(descriptor, BYTES_MAX) if trusted else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return parse_hazard(content, job, now)


def parse_hazard(content: bytes, job: str, now: float) -> PublishedHazard | None:
    """Parse the file's content; None if it is invalid, of another job, or expired."""
    try:
        document = json.loads(content)
        per_s, nodes, until = (document[name] for name in PublishedHazard._fields)
        if document["version"] != VERSION or document["job"] != job or isinstance(nodes, bool):
            return None
        hazard = PublishedHazard(float(per_s), int(nodes), float(until))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    sound = isfinite(hazard.per_s) and PER_S_MIN <= hazard.per_s <= PER_S_MAX and hazard.nodes > 0
    return hazard if sound and isfinite(hazard.valid_until) and hazard.valid_until > now else None
