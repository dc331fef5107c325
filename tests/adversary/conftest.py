from __future__ import annotations

import sys

# schemathesis needs Python 3.11, and so is in no older environment
collect_ignore = [] if sys.version_info >= (3, 11) else ["test_every_operation.py"]
