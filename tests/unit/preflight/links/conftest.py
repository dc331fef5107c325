from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from preflight.results import Result

Run = Callable[..., list[Result]]


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a test of peers in real processes over gloo: ``ranks("peer_links", 4, {3: "corrupt"})``."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("ranks.py")
    root = Path(__file__).parents[4]
    with subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PYTHONPATH": str(root), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    ) as process:

        def run(test: str, count: int, faults: dict[int, str] | None = None, level: str = "gate") -> list[Result]:
            request = {"test": test, "ranks": count, "faults": faults or {}, "level": level, "seconds": 1.0}
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return msgspec.convert(json.loads(process.stdout.readline()), list[Result])

        yield run
        process.stdin.close()
