"""An operator's hands on a real controller: what is broken is told, hostile words steer nothing, a cordon is the person's own."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from healthctl.main import cli
from tests.e2e.controller_process import Controller
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import FindingChange, Gpu, RankStatus, Report, encode_message

EVIL = "[red]fallen[/red] \x1b[2J\x1b]0;owned\x07 off\u202e `reboot` $(reboot)\nthe bus"
LOOKS = (
    ["status"], ["status", "-o", "wide"], ["nodes"], ["nodes", "--versions"], ["nodes", "show", "n1"],
    ["nodes", "history", "n1"], ["gpus", "-o", "wide"], ["jobs", "-o", "wide"], ["incidents", "-o", "wide"],
    ["actions", "-o", "wide"], ["actions", "awaiting"], ["events"],
)  # fmt: skip
Run = Callable[..., Result]


def report(node: str, *findings: Finding) -> bytes:
    now = time.time()
    gpus = tuple(Gpu(index, f"GPU-{node}-{index}", f"0000:0{index}:00.0", EVIL) for index in range(2))
    ranks = tuple(RankStatus(EVIL, 1, index, 4, 4000, 118, EVIL, now, gpu=gpus[index].uuid) for index in range(2))
    return encode_message(
        Report(
            version=1,
            node=node,
            boot_id="b",
            agent="a",
            seq=1,
            sent_at=now,
            ttl_s=600,
            health=Health.UNHEALTHY if findings else Health.HEALTHY,
            changes=tuple(FindingChange(number + 1, each) for number, each in enumerate(findings)),
            active=findings,
            gpus=gpus,
            ranks=ranks,
        )
    )


def fallen() -> Finding:
    gpu = Component(ComponentKind.GPU, "GPU-n1-0", "0000:00:00.0", 0)
    return Finding(
        id=finding_id("n1", "xid", "79", gpu, "o"),
        node="n1",
        check="xid",
        code="79",
        component=gpu,
        severity=Severity.FATAL,
        summary=EVIL,
        first_seen=time.time(),
        last_seen=time.time(),
        origin="o",
    )


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path)
    controller.start()
    yield controller
    controller.end(signal.SIGKILL)


@pytest.fixture
def healthctl(controller: Controller, tmp_path: Path) -> Run:
    token = tmp_path / "ann.token"
    token.write_text(controller.tokens["ann"])

    def run(*arguments: str) -> Result:
        server = ("--server", controller.url, "--token-file", str(token))
        return CliRunner().invoke(cli, [*arguments, *server], env={"NO_PROXY": "*"}, prog_name="healthctl")

    return run


def test_what_is_broken_is_told_hostile_words_steer_nothing_and_a_person_s_cordon_stays(
    controller: Controller, healthctl: Run
) -> None:
    assert controller.call("POST", "/v1/nodes/n2/report", "n2", data=report("n2")).status_code == 200
    deadline = time.monotonic() + 60
    while (well := healthctl("status")).exit_code:  # until the scheduler has been asked
        assert time.monotonic() < deadline, well.stdout
        time.sleep(0.3)
    assert (well.exit_code, well.stdout.splitlines()[0].startswith("default is healthy")) == (0, True), well.stdout

    assert controller.call("POST", "/v1/nodes/n1/report", "n1", data=report("n1", fallen())).status_code == 200
    while "by rule gpu-lost" not in (broken := healthctl("status")).stdout:
        assert time.monotonic() < deadline, broken.stdout
        time.sleep(0.3)
    assert broken.exit_code == 1, broken.stderr
    for told in ("1 open incident", "n1: xid/79", "by rule gpu-lost", "healthctl nodes hold n1 'WHY'"):
        assert told in broken.stdout

    for look in LOOKS:
        done = healthctl(*look)
        assert done.exit_code in (0, 1), done.stderr
        assert done.stdout
        assert all(line.isprintable() for line in done.stdout.split("\n")), look

    refused = healthctl("nodes", "cordon", "n2", "a fan is changed")
    assert (refused.exit_code, refused.stdout) == (2, "")
    looked = healthctl("nodes", "cordon", "n2", "a fan is changed", "--dry-run")
    assert "ranks 0-1 of 4" in looked.stdout, looked.stderr
    assert "1 isolated, at most 1" in looked.stdout, looked.stdout
    done = healthctl("nodes", "cordon", "n2", "a fan is changed", "--yes")
    assert done.exit_code == 0, done.stderr
    node = json.loads(healthctl("nodes", "show", "n2", "-o", "json").stdout)
    assert (node["held_by"], node["state"]) == ("operator", "operator-held")
    back = healthctl("nodes", "uncordon", "n2", "--yes")
    assert back.exit_code == 0, back.stderr
    assert "held_by" not in json.loads(healthctl("nodes", "show", "n2", "-o", "json").stdout)
    history = healthctl("nodes", "history", "n2").stdout
    assert "ann cordons n2: a fan is changed" in history
    assert "ann uncordons n2" in history
    deeds = [json.loads(line) for line in healthctl("events", "--actor", "ann*", "-o", "json").stdout.splitlines()]
    assert [(each["node"], each["text"].split()[1]) for each in deeds] == [("n2", "cordons"), ("n2", "uncordons")], (
        deeds
    )
