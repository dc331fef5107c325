from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from healthd.config import Config, load_node_config, parse_node_config
from healthd.http_server.status_server import PAGES
from remediator.api.access_control import Access
from remediator.api.route_table import ENDPOINTS
from remediator.config import Config as CentreConfig
from remediator.config import load_config
from remediator.serving.listener import FILES
from remediator.store.database import parse_database_url
from tests.conftest import skip_or_fail
from tests.nodes.fake_kubernetes.schema import problems

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "gpu-healthd.service"
IDLE_UNIT = UNIT.with_name("gpu-idle-test.service")
CENTRE_UNIT = UNIT.with_name("gpu-remediator.service")
NODES = 12_500


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()))


def manifest(kind: str, file: str = "healthd.yaml") -> dict[str, Any]:
    return next(document for document in documents(file) if document["kind"] == kind)


def keys_of(section: msgspec.Struct, before: str = "") -> set[str]:
    names: set[str] = set()
    for name in section.__struct_fields__:
        value = getattr(section, name)
        names |= keys_of(value, f"{before}{name}.") if isinstance(value, msgspec.Struct) else {before + name}
    return names


def test_the_sample_configuration_shows_the_defaults() -> None:
    assert load_node_config(DEPLOY / "healthd.yaml") == Config()


def test_the_sample_configuration_shows_every_key() -> None:
    text = (DEPLOY / "healthd.yaml").read_text()
    assert [key for key in keys_of(Config()) if f"{key.rpartition('.')[2]}:" not in text] == []


def mounted(pod: dict[str, Any]) -> set[str]:
    return {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}


def test_the_daemon_set_gives_healthd_a_configuration_that_it_takes() -> None:
    config = parse_node_config(manifest("ConfigMap")["data"]["healthd.yaml"], "healthd.yaml")
    pod = manifest("DaemonSet")["spec"]["template"]["spec"]
    assert config.listen_address[1] == pod["containers"][0]["ports"][0]["containerPort"]
    assert {str(config.state_dir), str(config.run_dir), str(config.kernel_log.path)} <= mounted(pod)
    assert str(config.beacon_dir.parent) in mounted(pod)


def test_healthd_believes_one_authority_and_keeps_its_own_token() -> None:
    config = parse_node_config(manifest("ConfigMap")["data"]["healthd.yaml"], "healthd.yaml").remediator
    pod = manifest("DaemonSet")["spec"]["template"]["spec"]
    assert config.url.startswith("https://")
    for file in (config.ca_file, config.enrol_token_file, config.token_file):
        assert file is not None
        assert str(file.parent) in mounted(pod)
    state = next(volume for volume in pod["volumes"] if volume["name"] == "state")
    assert state["hostPath"]["path"] == str(config.token_file.parent), "it outlives the pod"  # type: ignore[union-attr]  # see above


def centre(tmp_path: Path) -> CentreConfig:
    (tmp_path / "remediator.yaml").write_text(manifest("ConfigMap", "centre.yaml")["data"]["remediator.yaml"])
    return load_config(tmp_path / "remediator.yaml")


def test_the_centre_takes_its_configuration_and_is_where_healthd_looks_for_it(tmp_path: Path) -> None:
    config = centre(tmp_path)
    pod = manifest("Deployment", "centre.yaml")["spec"]["template"]["spec"]
    assert config.tls is not None
    assert {str(Path(file).parent) for file in (config.tls.certificate, config.tls.key)} <= mounted(pod)
    assert parse_database_url(config.database).get_backend_name() == "postgresql"
    assert parse_database_url(config.database).password is None, "that is a secret"
    assert config.scheduler.kind == "kubernetes"
    (port,) = pod["containers"][0]["ports"]
    assert config.address == ("0.0.0.0", port["containerPort"])
    service, account = manifest("Service", "centre.yaml"), manifest("ServiceAccount", "remediator.yaml")
    url = parse_node_config(manifest("ConfigMap")["data"]["healthd.yaml"], "healthd.yaml").remediator.url
    (entry,) = service["spec"]["ports"]
    assert url == f"https://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{entry['port']}"
    assert (pod["serviceAccountName"], service["metadata"]["namespace"]) == (
        account["metadata"]["name"],
        account["metadata"]["namespace"],
    )
    assert service["spec"]["selector"].items() <= manifest("Deployment", "centre.yaml")["spec"]["template"]["metadata"]["labels"].items()  # fmt: skip


def test_only_who_leads_is_behind_the_service_and_nothing_waits_for_the_others() -> None:
    deployment = manifest("Deployment", "centre.yaml")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    routes = {endpoint.path for endpoint in ENDPOINTS if endpoint.access is Access.ANYONE}
    assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "api", "scheme": "HTTPS"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "api", "scheme": "HTTPS"}
    assert {"/healthz", "/livez"} <= routes
    assert deployment["spec"]["replicas"] > 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert "PodDisruptionBudget" not in {document["kind"] for document in documents("centre.yaml")}


@pytest.mark.parametrize("file", ["centre.yaml", "healthd.yaml"])
def test_every_manifest_has_the_published_shape(file: str) -> None:
    for document in documents(file):
        assert list(problems(document, f"V1{document['kind']}")) == [], document["kind"]


def test_the_sample_of_the_centre_shows_defaults() -> None:
    assert load_config(DEPLOY / "remediator.yaml") == CentreConfig()


def test_the_daemon_set_asks_pages_that_exist() -> None:
    container = manifest("DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    asked = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert asked <= set(PAGES)


@pytest.mark.parametrize(("kind", "file"), [("DaemonSet", "healthd.yaml"), ("Deployment", "centre.yaml")])
def test_every_mount_has_its_volume(kind: str, file: str) -> None:
    pod = manifest(kind, file)["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize(("unit", "program"), [(UNIT, "healthd"), (CENTRE_UNIT, "remediator"), (IDLE_UNIT, "python")])
def test_systemd_understands_the_unit(tmp_path: Path, unit: Path, program: str) -> None:
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("no systemd-analyze here")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(f"/opt/gpu-healthd/bin/{program}", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("unit", "exposed"), [(UNIT, 45), (IDLE_UNIT, 45), (CENTRE_UNIT, 25)])
def test_systemd_finds_the_unit_well_shut(unit: Path, exposed: int) -> None:
    """In tenths of systemd's own scale, 0 to 100; a unit that shuts nothing has 96. The node's is root, and sees devices."""
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("no systemd-analyze here")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={exposed}", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


@pytest.mark.parametrize("key", ["state_dir", "run_dir"])
def test_systemd_makes_the_directories_that_the_configuration_names(key: str) -> None:
    kind = {"state_dir": ("StateDirectory", Path("/var/lib")), "run_dir": ("RuntimeDirectory", Path("/run"))}[key]
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith(f"{kind[0]}="))
    assert kind[1] / line.partition("=")[2] == getattr(Config(), key)


def test_the_centre_may_open_two_connections_a_node() -> None:
    line = next(line for line in CENTRE_UNIT.read_text().splitlines() if line.startswith("LimitNOFILE="))
    assert int(line.partition("=")[2]) >= FILES >= 2 * NODES + CentreConfig().limits.strangers


def test_the_centre_opens_as_many_files_as_it_may() -> None:
    code = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 1000)); "
    code += "from remediator.serving.listener import raise_file_limit; raise_file_limit(); print(*r.getrlimit(r.RLIMIT_NOFILE))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1000", "1000"]


def test_systemd_keeps_what_the_sample_of_the_centre_names() -> None:
    config = load_config(DEPLOY / "remediator.yaml")
    kept = [Path(config.scheduler.state_file), Path(str(parse_database_url(config.database).database))]
    assert {file.parent for file in kept} == {Path("/var/lib/gpu-healthd")}
    assert "StateDirectory=gpu-healthd\n" in CENTRE_UNIT.read_text()
