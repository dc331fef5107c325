"""`python -m bench`: every budget measured, one report. `--help` says how to measure only some."""

from __future__ import annotations

import sys

from bench.report.main import main

if __name__ == "__main__":
    sys.exit(main())
