"""The file that excludes a part of a Slurm allocation from NVIDIA's resiliency launcher.

`ft_launcher --ft-segment-health-check-dir DIR` (nvidia-resiliency-ext 0.7 and newer) checks, before each rendezvous,
for DIR/segment_health_check.JOB.TASK: if it exists and is not empty, that unit of the allocation is left out. A unit is
a task of a job array, with all its nodes; in any other job it is the whole job. The content is for people.

    with condemned_segment("/shared/job/segments"), Guard.from_env(store=store) as guard:
        ...
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.process_exit import register_final_action
from vocabulary.atomic_file import replace_file

DIRECTORY_VARIABLE = "HEALTHD_SEGMENT_HEALTH_DIR"
_log = logging.getLogger("healthd.trainer")


class Segment(NamedTuple):
    """A unit of an allocation, by Slurm's numbers; `array`: whether it is a task of a job array."""

    job: str
    task: str
    array: bool

    @property
    def file_name(self) -> str:
        """The name that the launcher checks."""
        return f"segment_health_check.{self.job}.{self.task}"


def find_segment(environ: Mapping[str, str]) -> Segment | None:
    """Return the unit this process runs in; None outside Slurm."""
    array = environ.get("SLURM_ARRAY_JOB_ID", "")
    job = array or environ.get("SLURM_JOB_ID", "")
    task = environ.get("SLURM_ARRAY_TASK_ID") or job
    if not (_is_plain_number(job) and _is_plain_number(task)):
        return None
    return Segment(job, task, array=bool(array))


def condemn(directory: str | os.PathLike[str], segment: Segment, why: str) -> Path:
    """Exclude the unit. The file appears atomically. Idempotent.

    Args:
        directory: absolute, seen by every launcher; must exist.
        segment: the unit.
        why: for people, not empty.

    Raises:
        ValueError: the directory is not absolute, or there is no reason.
        OSError: a file operation failed.
    """
    root = Path(directory)
    if not root.is_absolute():
        raise ValueError(f"{root}: the launcher accepts only an absolute path")
    if not why.strip():
        raise ValueError("condemning a unit needs a reason")
    final = root / segment.file_name
    text = json.dumps({"why": why, "node": os.uname().nodename, "at": time.time(), "by": "gpu-healthd"})
    replace_file(final, f"{text}\n".encode(), sync_content=True)
    return final


def pardon(directory: str | os.PathLike[str], segment: Segment) -> None:
    """Allow the unit again. Does nothing if it was not condemned.

    Raises:
        OSError: a file operation failed.
    """
    (Path(directory) / segment.file_name).unlink(missing_ok=True)


@contextmanager
def condemned_segment(
    directory: str | os.PathLike[str] = "", *, environ: Mapping[str, str] | None = None, whole_job: bool = False
) -> Iterator[None]:
    """Wrap the guard: if this rank leaves because of its own node, saved (90) or not (92), exclude its unit.

    Args:
        directory: for the file; empty uses HEALTHD_SEGMENT_HEALTH_DIR, and without that nothing is written.
        environ: holds Slurm's numbers; None is this process's.
        whole_job: also exclude a job that is no array. The launcher then ends the job at its next rendezvous,
        whichever node was condemned: right only for jobs of one node.
    """
    environ = os.environ if environ is None else environ
    root = directory or environ.get(DIRECTORY_VARIABLE, "")
    text = "this node must be left; its ranks have left"
    with register_final_action(lambda: _mark_segment(root, environ, f"{text} without saving", whole_job=whole_job)):
        try:
            yield
        except Leave as leave:
            if leave.condemned:
                saved = " without saving" if leave.code == ExitCode.ABORTED else " and have saved"
                _mark_segment(root, environ, text + saved, whole_job=whole_job)
            raise


def _mark_segment(directory: str | os.PathLike[str], environ: Mapping[str, str], why: str, *, whole_job: bool) -> None:
    segment = find_segment(environ)
    if not directory or segment is None:
        return
    if not (segment.array or whole_job):
        text = "job %s is not an array: marking it would end the whole job, so the launcher is not notified that this node must be left"
        _log.warning(text, segment.job)
        return
    try:
        path = condemn(directory, segment, why)
    except (OSError, ValueError) as error:
        _log.warning("segment health: %s; the launcher is not notified", error)
    else:
        _log.warning("segment health: %s written", path)


def _is_plain_number(text: str) -> bool:
    """Return whether it is a plain number, as Slurm's ids are; anything else could name a file elsewhere."""
    return text.isascii() and text.isdigit()
