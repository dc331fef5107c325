"""From inside a pod: the service account's token and certificate authority, over TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.config import incluster_config

from remediator.config import SchedulerConfig
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.scheduler_hold import ActionResult
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from remediator.serving.leader_term import build_scheduler
from tests.conftest import skip_or_fail
from tests.nodes.fake_kubernetes.cluster import Cluster, our_rules
from tests.nodes.fake_kubernetes.server import Server
from vocabulary.clock import SystemClock

OURS = "gpu-healthd: inc-1 XID 79"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a pod finds of its service account."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl here to make a certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "ca.crt")], check=True, capture_output=True
    )
    (tmp_path / "both").write_text((tmp_path / "key").read_text() + (tmp_path / "ca.crt").read_text())
    (tmp_path / "token").write_text("centre")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    return tmp_path


@pytest.fixture
def server(account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server({"centre": our_rules()}, account / "both") as found:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(found.server_address[1]))
        Cluster(found, account).node("node1")
        yield found


def test_the_service_account_is_enough(server: Server) -> None:
    ours = KubernetesScheduler(KubernetesOptions(settle_s=0.0))
    try:
        assert ours.observe(["node1"])["node1"].schedulable is True
        assert [ours.cordon("node1", OURS).result, ours.resume("node1").result] == [
            ActionResult.DONE,
            ActionResult.DONE,
        ]
        assert {token for token, _ in server.asked} == {"centre"}
    finally:
        ours.close()


def test_a_server_that_another_authority_vouches_for_gets_no_token(server: Server, account: Path) -> None:
    strange = account / "strange"
    strange.mkdir()
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-keyout"]
    subprocess.run([*command, str(strange / "key"), "-out", str(account / "ca.crt")], check=True, capture_output=True)
    failed = KubernetesScheduler(KubernetesOptions(deadline_s=2.0)).cordon("node1", OURS)
    assert failed.result is ActionResult.FAILED
    assert "certificate verify failed" in failed.detail.lower()
    assert server.asked == []


def test_the_configuration_names_the_backend() -> None:
    found = build_scheduler(SchedulerConfig(kind="kubernetes"), SystemClock(), ReportRegistry())
    assert isinstance(found, KubernetesScheduler)
