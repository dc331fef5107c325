from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from healthd.config import Config, load, parse
from healthd.http_status import PAGES
from tests.conftest import skip_or_fail

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "gpu-healthd.service"


def manifest(kind: str) -> dict[str, Any]:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "healthd.yaml").read_text()))
    return next(document for document in documents if document["kind"] == kind)


def keys_of(section: msgspec.Struct, before: str = "") -> set[str]:
    names: set[str] = set()
    for name in section.__struct_fields__:
        value = getattr(section, name)
        names |= keys_of(value, f"{before}{name}.") if isinstance(value, msgspec.Struct) else {before + name}
    return names


def test_the_sample_configuration_shows_the_defaults() -> None:
    assert load(DEPLOY / "healthd.yaml") == Config()


def test_the_sample_configuration_shows_every_key() -> None:
    text = (DEPLOY / "healthd.yaml").read_text()
    assert [key for key in keys_of(Config()) if f"{key.rpartition('.')[2]}:" not in text] == []


def test_the_daemon_set_gives_healthd_a_configuration_that_it_takes() -> None:
    config = parse(manifest("ConfigMap")["data"]["healthd.yaml"], "healthd.yaml")
    container = manifest("DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert config.listen_address[1] == container["ports"][0]["containerPort"]
    assert {str(config.state_dir), str(config.run_dir), str(config.kernel_log.path)} <= mounts
    assert str(config.beacon_dir.parent) in mounts
    assert config.remediator.token_file is not None
    assert str(config.remediator.token_file.parent) in mounts


def test_the_daemon_set_asks_pages_that_exist() -> None:
    container = manifest("DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    asked = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert asked <= set(PAGES)


def test_every_mount_of_the_daemon_set_has_its_volume() -> None:
    pod = manifest("DaemonSet")["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = pod["containers"] + pod["initContainers"]
    assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == volumes


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("no systemd-analyze here")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/gpu-healthd/bin/healthd", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("key", ["state_dir", "run_dir"])
def test_systemd_makes_the_directories_that_the_configuration_names(key: str) -> None:
    kind = {"state_dir": ("StateDirectory", Path("/var/lib")), "run_dir": ("RuntimeDirectory", Path("/run"))}[key]
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith(f"{kind[0]}="))
    assert kind[1] / line.partition("=")[2] == getattr(Config(), key)
