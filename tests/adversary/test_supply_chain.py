"""Other people's work in ours: locked by digest, under a licence that we may ship, told in a bill, and asked about in earnest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

from tools.supply import audit
from tools.supply.bill_of_materials import build_bill_of_materials
from tools.supply.lock_files import FOLDER, SHIPPED, read_licences, read_locked_packages

LOCKS = sorted(path.stem for path in FOLDER.glob("*.lock"))
PERMISSIVE = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC"),
    *("MIT", "MIT-0", "PSF-2.0", "Zlib"),
}  # fmt: skip
SPDX = get_spdx_licensing()


def permissive(expression: str) -> bool:
    """Whether every part, or of a choice one, is among the permissive ones."""
    parsed = SPDX.parse(expression, validate=False)
    parts = {str(part) for part in SPDX.license_symbols(parsed, decompose=False)}
    return bool(parts & PERMISSIVE) if " OR " in expression else parts <= PERMISSIVE


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_locked_by_its_digests(lock: str) -> None:
    entries = [line for line in (FOLDER / f"{lock}.lock").read_text().splitlines() if re.match(r"[A-Za-z0-9]", line)]
    assert len(read_locked_packages(lock)) == len(entries), "a line that is no locked package"


@pytest.mark.parametrize("lock", SHIPPED)
def test_every_package_that_we_ship_may_be_shipped(lock: str) -> None:
    known = read_licences()
    for package in read_locked_packages(lock):
        licence = known[package.name]
        assert permissive(licence.expression) or licence.why, f"{package.name}: say behind it why we take it"


def test_the_table_has_no_package_that_we_do_not_ship() -> None:
    assert read_licences().keys() == {package.name for lock in SHIPPED for package in read_locked_packages(lock)}


def test_the_table_says_what_the_packages_say() -> None:
    """As far as they are installed here and say it in SPDX's words."""
    known = read_licences()
    told = {name: _expression(name) for name in known}
    assert sum(map(bool, told.values())) > 20
    assert {name: expression for name, expression in told.items() if expression} == {
        name: known[name].expression for name, expression in told.items() if expression
    }


def _expression(package: str) -> str:
    try:
        return metadata.metadata(package).get("License-Expression", "")
    except metadata.PackageNotFoundError:
        return ""


@pytest.mark.parametrize(
    ("expression", "may"), [("MIT AND GPL-3.0-only", False), ("MIT OR GPL-3.0-only", True), ("AGPL-3.0-only", False)]
)
def test_a_licence_that_asks_for_more_is_seen(expression: str, *, may: bool) -> None:
    assert permissive(expression) == may


@pytest.mark.parametrize("lock", SHIPPED)
def test_a_bill_of_materials_is_whole_valid_and_always_the_same(lock: str) -> None:
    made = build_bill_of_materials(lock)
    assert made == build_bill_of_materials(lock)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made) is None
    told = json.loads(made)
    assert {(part["name"], part["version"]) for part in told["components"]} == {
        (package.name, package.version) for package in read_locked_packages(lock)
    }
    assert all(part["licenses"] and part["properties"] for part in told["components"])


def dependency(name: str, *holes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "version": "1", **({"vulns": list(holes)} if "skip_reason" not in more else {}), **more}


def test_a_package_that_nobody_asked_about_is_not_called_good() -> None:
    """pip-audit itself ends with 0 and says that nothing is known."""
    report = {
        "dependencies": [dependency("a"), dependency("b", skip_reason="not found"), dependency("c", {"id": "CVE-1"})]
    }
    answer = audit.read_report(report, {"a", "b", "c", "d"})
    assert (answer.unasked, answer.why) == (("b", "d"), "not found")
    assert answer.holes == ("c 1: CVE-1, mended in no version",)


@pytest.mark.parametrize(
    ("program", "code", "says"),
    [
        ("exit 0", audit.NOT_ASKED, "could not ask about"),
        ("echo 'no network' >&2; exit 1", audit.NOT_ASKED, "reachable from here? pip-audit says: no network"),
        ('{ printf \'{"dependencies": []}\'; } > "$out"', audit.NOT_ASKED, "could not ask about"),
        ("sleep 0; exec /nowhere", audit.NOT_ASKED, "could not ask about"),
    ],
)
def test_an_audit_that_got_no_answer_never_passes(tmp_path: Path, program: str, code: int, says: str) -> None:
    script = tmp_path / "pip-audit"
    script.write_text(f"#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nout=$1\n{program}\n")
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tools.supply.audit", str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stderr.count(says) == len(SHIPPED)
    assert "no known holes" not in done.stdout
