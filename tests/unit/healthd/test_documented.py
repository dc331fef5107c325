"""What healthd can say stands in its documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from healthd.http_server.check_names import CHECK_NAMES
from healthd.kernel_log.message_patterns.line_pattern import PatternFamily
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.source_monitoring.source_registry import SOURCES

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
WORDS = {
    word
    for page in ("healthd.md", "findings.md", "xids.md")
    for word in re.findall(r"[a-z0-9_]+", (REFERENCE / page).read_text())
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.check)
def test_every_finding_of_the_kernel_log_is_documented(family: PatternFamily) -> None:
    missing = [form.code for form in family.forms if form.code not in WORDS]
    assert missing == []


def test_every_check_and_every_source_is_documented() -> None:
    assert sorted({*CHECK_NAMES, *(source.name for source in SOURCES)} - WORDS) == []
