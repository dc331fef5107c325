"""The published schema of a group's document is what the records say."""

from __future__ import annotations

from pathlib import Path

import preflight
from preflight.group.group_schema import FILE_NAME, schema_text

PUBLISHED = Path(preflight.__file__).parent / "schemas" / FILE_NAME


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text() == schema_text()
