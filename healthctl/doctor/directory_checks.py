"""The directories that healthd writes to: are they there, writable, on the right kind of disk, with room?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from healthctl.doctor.diagnosis import Diagnosis, diagnose_bad, diagnose_good
from healthd.config import Config

ROOM_BYTES = 64 << 20  # the outbox's bound, and as much again for the log that SQLite writes ahead
VOLATILE = ("tmpfs", "ramfs", "overlay")


def check_directories(config: Config, mounts: Path = Path("/proc/self/mounts")) -> Iterator[Diagnosis]:
    """Each directory; one that is not there yet is judged by the nearest that is."""
    kinds = _file_systems(mounts)
    yield _check_directory(
        "state_dir", config.state_dir, "findings and orders must outlive a restart", kinds, durable=True
    )
    yield _check_directory("run_dir", config.run_dir, "prologs and healthctl ask healthd through a socket there", kinds)
    why = "trainers hear orders, and show their steps, through pages there"
    yield _check_directory("beacon_dir", config.beacon_dir, why, kinds, memory=True)


def _check_directory(
    key: str, path: Path, why: str, kinds: dict[str, str], *, durable: bool = False, memory: bool = False
) -> Diagnosis:
    there = next(place for place in (path, *path.parents) if place.exists())
    kind = _file_system_of(there, kinds)
    if not os.access(there, os.W_OK):
        todo = f"run this as the user that healthd runs as (root), or give {key} a place that can be written"
        return diagnose_bad(key, f"{path}: {there} cannot be written by user {os.geteuid()}", why, todo)
    free = shutil.disk_usage(there).free
    if free < ROOM_BYTES:
        return diagnose_bad(key, f"{path}: {free >> 20} MiB free", why, f"make room: {ROOM_BYTES >> 20} MiB at least")
    if durable and kind in VOLATILE:
        return diagnose_bad(key, f"{path} is on {kind}: gone after a reboot", why, f"put {key} on a disk")
    if memory and kind not in VOLATILE:
        return diagnose_bad(
            key, f"{path} is on {kind}: every step would write to a disk", why, f"put {key} below /dev/shm"
        )
    made = "" if path.exists() else "; healthd will make it"
    return diagnose_good(key, f"{path} on {kind or 'a file system'}, {free >> 20} MiB free{made}")


def _file_systems(mounts: Path) -> dict[str, str]:
    """Mount point → type. The last mount on a point is the one that is seen."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {words[1]: words[2] for line in lines if len(words := line.split()) > 2}


def _file_system_of(path: Path, kinds: dict[str, str]) -> str:
    return next((kinds[str(place)] for place in (path.resolve(), *path.resolve().parents) if str(place) in kinds), "")
