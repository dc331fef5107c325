"""Checks of the directories that healthd writes to: existence, permissions, file system type, free space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from healthctl.doctor.diagnosis import Diagnosis, diagnose_bad, diagnose_good
from healthd.config import Config

ROOM_BYTES = 64 << 20  # the outbox limit, and the same again for SQLite's write-ahead log
VOLATILE = ("tmpfs", "ramfs", "overlay")


def check_directories(config: Config, mounts: Path = Path("/proc/self/mounts")) -> Iterator[Diagnosis]:
    """Check each directory; for a missing one, its nearest existing parent."""
    kinds = _file_systems(mounts)
    yield _check_directory(
        "state_dir", config.state_dir, "findings and orders must survive a restart", kinds, durable=True
    )
    yield _check_directory(
        "run_dir", config.run_dir, "prologs and healthctl query healthd through a socket there", kinds
    )
    why = "trainers receive orders and publish their steps through shared memory there"
    yield _check_directory("beacon_dir", config.beacon_dir, why, kinds, memory=True)


def _check_directory(
    key: str, path: Path, why: str, kinds: dict[str, str], *, durable: bool = False, memory: bool = False
) -> Diagnosis:
    there = next(place for place in (path, *path.parents) if place.exists())
    kind = _file_system_of(there, kinds)
    if not os.access(there, os.W_OK):
        todo = f"run this as the user that healthd runs as (root), or set {key} to a writable directory"
        return diagnose_bad(key, f"{path}: {there} is not writable by user {os.geteuid()}", why, todo)
    free = shutil.disk_usage(there).free
    if free < ROOM_BYTES:
        return diagnose_bad(key, f"{path}: {free >> 20} MiB free", why, f"free at least {ROOM_BYTES >> 20} MiB")
    if durable and kind in VOLATILE:
        return diagnose_bad(key, f"{path} is on {kind}: lost after a reboot", why, f"put {key} on a disk")
    if memory and kind not in VOLATILE:
        return diagnose_bad(
            key, f"{path} is on {kind}: every step would write to a disk", why, f"put {key} below /dev/shm"
        )
    made = "" if path.exists() else "; healthd will create it"
    return diagnose_good(key, f"{path} on {kind or 'a file system'}, {free >> 20} MiB free{made}")


def _file_systems(mounts: Path) -> dict[str, str]:
    """Mount point → type. The last mount on a point is the visible one."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {words[1]: words[2] for line in lines if len(words := line.split()) > 2}


def _file_system_of(path: Path, kinds: dict[str, str]) -> str:
    return next((kinds[str(place)] for place in (path.resolve(), *path.resolve().parents) if str(place) in kinds), "")
