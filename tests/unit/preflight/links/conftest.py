from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from preflight.results import Result

Ask = Callable[[str, int, "dict[int, str] | None", "dict[int, str] | None"], list[Any]]
Run = Callable[..., list[Result]]


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Real processes over gloo: ``asked(test, ranks, faults, until)`` (see `ranks.py`)."""
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

        def ask(test: str, count: int, faults: dict[int, str] | None, until: dict[int, str] | None) -> list[Any]:
            request = {
                "test": test,
                "ranks": count,
                "faults": faults or {},
                "until": until or {},
                "cuda": test.endswith(" on cuda"),
            }
            request["test"] = test.removesuffix(" on cuda")
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(request | {"level": "gate", "seconds": 1.0}) + "\n")
            process.stdin.flush()
            return list(json.loads(process.stdout.readline()))

        yield ask
        process.kill()


@pytest.fixture
def ranks(asked: Ask) -> Run:
    """The results of a test of peers: ``ranks("peer_links", 4, {3: "corrupt"})``; ``"peer_links on cuda"`` simulates GPUs."""

    def run(test: str, count: int, faults: dict[int, str] | None = None) -> list[Result]:
        return msgspec.convert(asked(test, count, faults, None), list[Result])

    return run


@pytest.fixture
def hanging(asked: Ask) -> Callable[..., list[list[str]]]:
    """What each rank of a test that hangs announced: ``hanging("peer_links", 2, {1: "silent"}, {0: "data to"})``."""
    return asked
