"""The samples: the product's own loader takes every one, and they mean what their words say."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from healthctl.main import cli
from healthd.config import load_node_config
from remediator.config import load_config
from remediator.fleet.topology_file import load_topology
from remediator.model.plan_steps import Mode
from remediator.playbook.playbook_loader import load_policy

DEPLOY = Path(__file__).parents[3] / "deploy"
SAMPLES = DEPLOY / "samples"
PLACES = "/etc/gpu-healthd/"


def test_every_sample_is_read_here_or_beside() -> None:
    assert {file.name for file in DEPLOY.glob("*.yaml")} == {"healthd.yaml", "remediator.yaml"}
    load_node_config(DEPLOY / "healthd.yaml")
    load_config(DEPLOY / "remediator.yaml")
    assert {file.name for file in SAMPLES.iterdir()} == {"remediator-slurm.yaml", "site-playbook.yaml", "topology.yaml"}


def test_the_centre_for_slurm_names_the_other_samples_and_tells_people(tmp_path: Path) -> None:
    text = (SAMPLES / "remediator-slurm.yaml").read_text()
    (tmp_path / "remediator.yaml").write_text(text.replace(f"{PLACES}topology", str(SAMPLES / "topology")))
    config = load_config(tmp_path / "remediator.yaml")
    assert (config.scheduler.kind, config.mode) == ("slurm", Mode.RECOMMEND)
    assert [Path(file).name for file in config.playbooks] == ["site-playbook.yaml"]
    assert config.database.endswith("sslmode=verify-full")
    unit = (DEPLOY / "systemd" / "gpu-remediator.service").read_text()
    assert f"\nEnvironment=PGPASSFILE={PLACES}pgpass\n" in unit
    assert f"{PLACES}pgpass" in text
    assert set(config.alerts.receivers) == {"oncall", "chat"}


def test_the_topology_says_where_nodes_stand() -> None:
    places = load_topology(SAMPLES / "topology.yaml").of(["gpu-001", "gpu-064", "other"])
    assert [places[node].rack for node in ("gpu-001", "gpu-064", "other")] == ["r1", "r2", ""]
    assert places["other"].driver == "580.95.05"


def test_the_policy_changes_one_rule_and_has_no_problem() -> None:
    file = SAMPLES / "site-playbook.yaml"
    rules = {rule.name: rule for rule in load_policy([file]).rules}
    shipped = {rule.name: rule for rule in load_policy([DEPLOY.parent / "playbooks" / "default.yaml"]).rules}
    assert {name for name, rule in rules.items() if rule.mode != shipped[name].mode} == {"driver-asks-for-reboot"}
    assert rules["driver-asks-for-reboot"].mode is Mode.APPROVE
    done = CliRunner().invoke(cli, ["playbook", "lint", str(file)])
    assert (done.exit_code, "0 problems" in done.output) == (0, True)
