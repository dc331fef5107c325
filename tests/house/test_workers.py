"""Several workers share the tests out by file: a file's fixtures are made once, and what shares a machine waits in turn."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("tests/unit/vocabulary/test_injected_line.py", "tests/unit/vocabulary/test_duration_format.py")
RAN = re.compile(r"^\[(gw\d)\].* PASSED ([^:]+)::", re.MULTILINE)


def test_a_files_tests_run_in_one_worker() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", *FILES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    workers = defaultdict(set)
    for worker, path in RAN.findall(done.stdout):
        workers[path].add(worker)
    assert sorted(workers) == sorted(FILES), done.stdout + done.stderr
    assert [len(each) for each in workers.values()] == [1, 1], "xdist gives a file's tests to whoever is free"
