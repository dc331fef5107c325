"""The container files: they copy what the wheel is made of, and install what is locked, by its digest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

tomllib = pytest.importorskip("tomllib", reason="came with Python 3.11")
ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "containers").glob("*.Containerfile"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {"node": [], "preflight": ["preflight"], "centre": ["postgres", "kubernetes"]}
NAME = re.compile(r"([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; [^\\]+)?")


def locked(lock: str) -> dict[str, set[Version]]:
    """Package: its versions, of which a machine gets one. Fails where one has no digest."""
    found: dict[str, set[Version]] = {}
    text = re.sub(r"^ *#.*\n", "", (ROOT / "requirements" / f"{lock}.lock").read_text(), flags=re.MULTILINE)
    for entry in re.split(r"\n(?=\S)", text.strip()):
        match = NAME.match(entry)
        assert match, entry
        assert "--hash=sha256:" in entry, match[1]
        found.setdefault(canonicalize_name(match[1]), set()).add(Version(match[2]))
    return found


def wanted(extras: list[str]) -> list[Requirement]:
    lines: list[str] = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        for line in PROJECT["project"]["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["project"]["name"]:
                lines += [str(each) for each in wanted(sorted(requirement.extras))]
            else:
                lines.append(line)
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("lock", sorted(EXTRAS))
def test_a_lock_holds_all_that_its_image_needs(lock: str) -> None:
    found = locked(lock)
    for requirement in wanted(EXTRAS[lock]):
        versions = found.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not in {lock}.lock: make lock"
        assert all(version in requirement.specifier for version in versions), f"{requirement}: make lock"


@pytest.mark.parametrize("lock", [*sorted(EXTRAS), "build"])
def test_an_image_has_the_versions_that_the_tests_ran_with(lock: str) -> None:
    tested, pinned = locked("dev"), locked(lock)
    pinned_torch = {Version((ROOT / "requirements" / "constraints-dev.txt").read_text().rpartition("==")[2].strip())}
    for name, versions in pinned.items():
        if name == "torch":
            assert versions == pinned_torch
        elif name in tested:
            assert versions <= tested[name], name


def test_the_nodes_image_without_preflight_stays_small() -> None:
    assert not set(locked("node")) & {"torch", "numpy", "triton", "sqlalchemy", "kubernetes"}
    assert not set(locked("centre")) & {"torch", "triton"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_holds_every_package_of_the_wheel_and_copies_what_is_there(file: Path) -> None:
    sources = [
        source.replace("${LOCK}", lock)
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", file.read_text(), re.MULTILINE)
        for source in line.split()
        for lock in ("preflight", "node")
    ]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(sources)
    for said in (PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]):
        assert said in sources


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_everything_installed_is_checked_and_the_base_can_be_named_by_its_digest(file: Path) -> None:
    text = file.read_text()
    installs = re.findall(r"pip install ([^\n\\]+)", text)
    assert installs
    assert all("--require-hashes" in line or "--no-index --no-deps" in line for line in installs)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON_IMAGE}"}


def test_the_centre_runs_as_the_user_that_the_manifest_names() -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", (FILES[0].parent / "centre.Containerfile").read_text(), re.MULTILINE)
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "centre.yaml").read_text())
    pod = next(each for each in documents if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    context = pod["securityContext"]
    assert users == [(str(context["runAsUser"]), str(context["runAsGroup"]))]
    assert context["runAsNonRoot"] is True
