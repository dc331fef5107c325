"""Small files of this machine, below a root folder, which tests replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Machine:
    """One machine. `/` is this one."""

    root: Path = Path("/")

    def path(self, path: str) -> Path:
        """The real location of an absolute path of the machine."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """The content of a small file, stripped; None if missing or unreadable."""
        try:
            with self.path(path).open("rb") as file:
                return file.read(FILE_BYTES_MAX).decode(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The integer in a file, decimal or 0x…; None if there is none."""
        text = self.text(path)
        try:
            return None if text is None else int(text, 0)
        except ValueError:
            return None

    def names(self, directory: str) -> list[str]:
        """The sorted content of a folder; empty if missing."""
        try:
            return sorted(entry.name for entry in self.path(directory).iterdir())
        except OSError:
            return []

    def target(self, path: str) -> str:
        """The real path behind a symbolic link, as the machine names it; empty if there is none."""
        try:
            real = self.path(path).resolve(strict=True)
            return f"/{real.relative_to(self.root.resolve())}"
        except (OSError, ValueError):
            return ""


def parse_number_list(text: str) -> tuple[int, ...]:
    """``0-3,8`` → 0, 1, 2, 3, 8: the kernel's list format for CPUs and memory nodes. Empty if invalid."""
    found: list[int] = []
    try:
        for part in text.split(",") if text.strip() else ():
            first, dash, last = part.partition("-")
            found += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        return ()
    return tuple(found)
