"""Builds the fake ``libnvidia-ml.so.1`` with the machine's C compiler, and writes the files that steer it.

python tests/nodes/fake_nvml/build.py DIRECTORY     prints the path of the library
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SOURCES = sorted(Path(__file__).parent.glob("*.[ch]"))
SONAME = "libnvidia-ml.so.1"


def build(directory: Path) -> Path:
    """Compile into `directory`, unless this very source has been compiled there before.

    Returns:
        The library's path, below a folder named by the source's hash.

    Raises:
        RuntimeError: no C compiler, or it fails; holds its words.
    """
    text = b"".join(source.read_bytes() for source in SOURCES)
    target = directory / f"fake-nvml-{hashlib.sha256(text).hexdigest()[:12]}" / SONAME
    if target.exists():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("no C compiler (cc, gcc or clang) on PATH; on Debian: apt-get install gcc libc6-dev")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{SONAME}.{os.getpid()}")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [compiler, *warnings, "-O1", "-pthread", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-o", str(aside)]
    command += [str(source) for source in SOURCES if source.suffix == ".c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    aside.replace(target)
    return target


def preset(name: str) -> list[str]:
    """The lines of a product's scenario, to begin one's own with: h100x8, h200x8, b200x8, a100x8, gb200x4."""
    return (Path(__file__).parent / "scenarios" / f"{name}.txt").read_text().splitlines()


def write_scenario(path: Path, lines: Iterable[str]) -> None:
    """Replace the scenario at once: the library never reads half of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    aside.write_text("".join(f"{line}\n" for line in lines))
    aside.replace(path)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
