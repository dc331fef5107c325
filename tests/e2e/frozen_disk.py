"""A small filesystem of its own that can be frozen: whoever writes to it waits, without an error, until it thaws."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SIZE_BYTES = 32 << 20


class FreezableDisk:
    """Mounted at `place`, which holds only what is on it."""

    def __init__(self, image: Path, place: Path) -> None:
        self.place = place
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(image))
        place.mkdir()
        _run("mount", "-o", "loop", str(image), str(place))

    def freeze(self) -> None:
        """From now on every write waits."""
        _run("fsfreeze", "--freeze", str(self.place))

    def thaw(self) -> None:
        """All that waited goes on."""
        _run("fsfreeze", "--unfreeze", str(self.place))

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen within, thawed whatever happens."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def close(self) -> None:
        """Unmount it; its processes must have ended."""
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            self.thaw()
        _run("umount", str(self.place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
