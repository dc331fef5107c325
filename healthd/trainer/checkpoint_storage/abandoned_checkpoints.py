"""Checkpoints that must not be used again: renamed, and never deleted while they are complete.

ROOT/abandoned-step-000000042/     a complete checkpoint that was abandoned
ROOT/abandoned-step-000000042.2/   of the same step, abandoned later
ROOT/going-back.json               the first excluded step, until the relaunched job has set the rest aside
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from healthd.trainer.checkpoint_storage.checkpoint_files import (
    MANIFEST,
    CheckpointError,
    read_manifest,
    require_listed_files,
)
from vocabulary.atomic_file import replace_file, sync_directory

MARK = "going-back.json"
_ABANDONED = re.compile(r"abandoned-step-(\d{9,})(\.\d+)?")


def set_aside(path: Path) -> Path:
    """Rename a checkpoint so that nothing loads it.

    Returns:
        Its new path.

    Raises:
        OSError: a file operation failed.
    """
    number, target = 1, path.with_name(f"abandoned-{path.name}")
    while target.exists():
        number += 1
        target = path.with_name(f"abandoned-{path.name}.{number}")
    return path.rename(target)


def list_usable_checkpoints(root: Path, finished: Mapping[Path, int]) -> list[Path]:
    """Return the complete checkpoints that may be used, oldest first.

    Args:
        root: directory of the checkpoints and the mark, if any.
        finished: steps that each checkpoint holds: one more than its last step's number.

    Raises:
        CheckpointError: the mark cannot be read.
    """
    before_step = read_mark(root)
    good = [path for path, steps in finished.items() if before_step is None or steps <= before_step]
    return sorted(good, key=lambda path: finished[path])


def go_back(root: Path, finished: Mapping[Path, int], before_step: int) -> Path:
    """Mark what is too new; arguments as for `list_usable_checkpoints`. One rank calls this.

    Returns:
        The newest that may be used.

    Raises:
        CheckpointError: there is none, or the mark cannot be read.
        OSError: a file operation failed.
    """
    good = [path for path in list_usable_checkpoints(root, finished) if finished[path] <= before_step]
    if not good:
        raise CheckpointError(f"{root}: holds no checkpoint before step {before_step}")
    mark_too_new(root, before_step)
    return good[-1]


def set_aside_marked(root: Path, finished: Mapping[Path, int]) -> None:
    """Set aside what is marked as too new, then remove the mark. One rank calls this, when all have loaded.

    Raises:
        CheckpointError: the mark cannot be read.
        OSError: a file operation failed.
    """
    if read_mark(root) is not None:
        for path in finished.keys() - set(list_usable_checkpoints(root, finished)):
            set_aside(path)
        remove_mark(root)


def list_incomplete_checkpoints(root: Path, *, before: int) -> list[Path]:
    """Return abandoned checkpoints older than step `before` that are incomplete: leftovers of a crash."""
    found = [(path, match) for path in root.iterdir() if (match := _ABANDONED.fullmatch(path.name))]
    return sorted(path for path, match in found if int(match[1]) < before and not _is_complete(path))


def _is_complete(path: Path) -> bool:
    """Return whether it is complete by names and sizes, without reading content."""
    try:
        files = read_manifest(path).files
        require_listed_files(path, set(files) | {MANIFEST})
        return all((path / name).stat().st_size == entry.bytes for name, entry in files.items())
    except FileNotFoundError:
        return False
    except CheckpointError as error:
        return not isinstance(error.__cause__, FileNotFoundError | None)
    except OSError:
        return True  # keep what cannot be checked


def mark_too_new(root: Path, before_step: int) -> None:
    """Exclude step `before_step` and later; the earliest of several marks counts. On disk when it returns.

    Raises:
        CheckpointError: the existing mark cannot be read.
        OSError: a file operation failed.
    """
    known = read_mark(root)
    content = json.dumps({"before_step": before_step if known is None else min(known, before_step)})
    replace_file(root / MARK, content.encode(), sync_content=True, sync_name=True)


def read_mark(root: Path) -> int | None:
    """Return the step of the mark; None if there is none.

    Raises:
        CheckpointError: it cannot be read, so the good checkpoints are unknown.
    """
    try:
        step = json.loads((root / MARK).read_text(encoding="utf-8"))["before_step"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(
            f"{root / MARK}: cannot be read ({error}); check which checkpoints are good, then delete it"
        ) from error
    if not isinstance(step, int):
        raise CheckpointError(
            f"{root / MARK}: before_step: {step!r} is not a step; check which checkpoints are good, then delete it"
        )
    return step


def remove_mark(root: Path) -> None:
    """Remove the mark once it has been applied. Idempotent.

    Raises:
        OSError: a file operation failed.
    """
    (root / MARK).unlink(missing_ok=True)
    if root.is_dir():
        sync_directory(root)
