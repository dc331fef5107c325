"""Who may import whom: the contracts in pyproject.toml, and what a training process may be made to load."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def test_the_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(lint), "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "healthd" / "checks").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_a_check_takes_only_sample_types_of_a_collector(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("healthd.collectors"):
            collector = importlib.import_module(node.module)
            assert all(isinstance(getattr(collector, alias.name), type) for alias in node.names), "a check only judges"
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("healthd.collectors") for alias in node.names)


TRAINER = {"torch", "numpy", "sqlalchemy", "pynvml", "requests", "msgspec", "yaml", "prometheus_client", "click"}
TRAINER_MODULES = sorted(
    ".".join(path.relative_to(ROOT / "healthd" / "trainer").with_suffix("").parts)
    for path in (ROOT / "healthd" / "trainer").rglob("[a-z]*.py")
    if "adapters" not in path.parts
)


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        *((f"healthd.trainer.{name}", TRAINER) for name in ("interval", *TRAINER_MODULES)),
        ("healthd.launcher.gate", {"torch", "sqlalchemy", "pynvml", "requests", "yaml", "prometheus_client"}),
        ("healthctl.main", {"torch", "sqlalchemy", "pynvml", "requests", "yaml", "prometheus_client", "starlette"}),
        ("healthd.daemon", {"torch", "sqlalchemy", "starlette", "jinja2"}),
        ("remediator.pipeline", {"torch", "sqlalchemy", "yaml", "requests", "starlette"}),
    ],
)
def test_importing_stays_light(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert set(loaded.stdout.split()) & unwanted == set()


def test_the_base_install_holds_only_what_a_node_or_healthctl_imports() -> None:
    tomllib = pytest.importorskip("tomllib", reason="came with Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [
        path for house in ("healthctl", "healthd", "preflight", "vocabulary") for path in ROOT.glob(f"{house}/**/*.py")
    ]
    modules = {
        name for path in sources for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
    }
    packages = packages_distributions()
    imported = {canonicalize_name(package) for module in modules for package in packages.get(module, ())}
    assert {canonicalize_name(Requirement(line).name) for line in project["dependencies"]} <= imported
