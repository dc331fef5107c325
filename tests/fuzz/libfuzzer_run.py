"""One target under libFuzzer, in a process of its own: `python -m tests.fuzz.libfuzzer_run TARGET [libFuzzer's options] [folders]`.

Coverage guides what is tried next; it ends with 77 at a case that breaks a property, takes too long or too much memory.
"""

from __future__ import annotations

import sys

import atheris

from tests.fuzz import registry

INSTRUMENTED = [
    "vocabulary",
    "healthd",
    "preflight",
    "remediator",
    "healthctl",
    "tests.fuzz.targets",
    "uvicorn",
    "yaml",
]


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=INSTRUMENTED):
        judge = registry.target(name).judge
    atheris.Setup([sys.argv[0], *options], judge)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
