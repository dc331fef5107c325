"""Three real remediators on a real PostgreSQL: killed between any two steps, deposed while stopped, without a database."""

from __future__ import annotations

import itertools
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from msgspec.structs import replace
from replicas import Replicas, until
from test_remediator_api import pending, report

from tests import postgresql
from vocabulary.finding import Finding
from vocabulary.messages.wire import encode_message
from vocabulary.order import OrderState, OrderUpdate

pytestmark = pytest.mark.timeout(600)  # for a busy machine

FINDING = pending()
HELD_BY = """
    SELECT a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()"""


@pytest.fixture
def replicas(tmp_path: Path, postgresql_server: postgresql.Cluster) -> Iterator[Replicas]:
    found = Replicas(tmp_path, postgresql_server)
    found.start()
    yield found
    found.close()


SEQ = itertools.count(1)


def tell(replicas: Replicas, *findings: Finding) -> None:
    """A report, as a node sends one every few seconds: with all that it finds now."""
    body = report(seq=next(SEQ), findings=findings)
    assert replicas.call("POST", "/v1/nodes/n1/report", "n1", data=body).status_code == 200


def orders(replicas: Replicas) -> list[dict[str, str]]:
    tell(replicas, FINDING)  # a leader that has heard nothing of a node does not know that its work has ended
    found: list[dict[str, str]] = replicas.call("GET", "/v1/nodes/n1/orders?wait_s=1", "n1").json()["orders"]
    return found


def test_killed_after_every_step_the_others_finish_what_was_begun(replicas: Replicas) -> None:
    """One plan with every kind of effect. Whoever leads is killed at each step, and comes back to stand by."""

    def kill_the_leader() -> None:
        leader = replicas.leader()
        leader.end(signal.SIGKILL)
        leader.start()

    tell(replicas, FINDING)
    kill_the_leader()  # the finding is written, nothing is done
    until(lambda: replicas.held() == ["n1"], "nobody cordoned the node")
    kill_the_leader()  # cordoned, and perhaps not yet written down
    until(lambda: replicas.noted("begin"), "nobody began the hook")
    kill_the_leader()  # in the middle of a hook
    until(lambda: len(replicas.noted("end")) >= 1, "nobody finished the hook")
    kill_the_leader()  # done, and perhaps not yet written down
    (order,) = until(lambda: orders(replicas), "nobody ordered the preflight")
    kill_the_leader()  # ordered
    assert [each["id"] for each in orders(replicas)] == [order["id"]], "the same order, from another leader"
    tell(replicas, FINDING.cleared(FINDING.last_seen + 1, "a test"))
    update = encode_message(OrderUpdate(id=order["id"], state=OrderState.SUCCEEDED, at=0.0))
    assert replicas.call("POST", f"/v1/nodes/n1/orders/{order['id']}", "n1", data=update).status_code == 204
    kill_the_leader()  # answered
    until(lambda: replicas.held() == [], "nobody gave the node back")
    until(lambda: replicas.sql("SELECT 1 FROM incidents WHERE closed"), "the incident was not closed")

    assert replicas.sql("SELECT outcome FROM incidents") == ["returned to service"]
    assert len(replicas.sql("SELECT id FROM decisions WHERE answer = 'act'")) == 1
    done = replicas.sql("SELECT verb FROM actions WHERE state = 'succeeded' ORDER BY planned_at, verb")
    assert sorted(done) == ["cordon", "exec", "resume", "run_preflight"]
    assert len({action for _, action in replicas.noted("begin")}) == 1, "a hook is repeated under its own id only"
    epochs = [int(epoch) for epoch in replicas.sql("SELECT epoch FROM inputs ORDER BY seq")]
    assert epochs == sorted(epochs)
    assert max(epochs) > 5


def test_a_leader_that_was_stopped_and_deposed_counts_for_nothing_when_it_goes_on(replicas: Replicas) -> None:
    old = replicas.leader()
    tell(replicas)
    answers: list[int] = []

    def wait_for_orders() -> None:
        headers = {"Authorization": f"Bearer {replicas.tokens['n1']}"}
        try:
            answer = requests.get(f"{old.url}/v1/nodes/n1/orders?wait_s=60", headers=headers, timeout=120)
            answers.append(answer.status_code if answer.json().get("orders") != [] else 0)
        except requests.RequestException:
            answers.append(0)

    poll = threading.Thread(target=wait_for_orders)
    poll.start()
    old.running.send_signal(signal.SIGSTOP)
    replicas.sql(f"SELECT pg_terminate_backend(pid) FROM ({HELD_BY}) held")  # noqa: S608 - a constant
    new = replicas.leader(but=old)
    before = replicas.sql("SELECT value FROM meta WHERE key = 'epoch'")
    late: list[int] = []

    def report_to_the_old() -> None:
        headers = {"Authorization": f"Bearer {replicas.tokens['n1']}"}
        other = replace(FINDING, id="told-to-the-old", origin="z")
        try:
            body = report(seq=next(SEQ), findings=(other,))
            late.append(requests.post(f"{old.url}/v1/nodes/n1/report", body, headers=headers, timeout=120).status_code)
        except requests.RequestException:
            late.append(0)

    told = threading.Thread(target=report_to_the_old)
    told.start()
    tell_new = replicas.call("POST", "/v1/nodes/n1/report", "n1", new, data=report(seq=next(SEQ), findings=(FINDING,)))
    assert tell_new.status_code == 200
    until(lambda: len(replicas.noted("end")) == 1, "the new leader does not act")
    old.running.send_signal(signal.SIGCONT)
    assert old.running.wait(60) == 1, "it ends by itself, and says that it failed"
    poll.join(60)
    told.join(60)

    assert answers in ([0], [503]), "no order was handed out by it"
    assert late in ([0], [503]), "nothing was acknowledged by it"
    assert replicas.sql("SELECT id FROM findings WHERE id = 'told-to-the-old'") == []
    assert replicas.sql("SELECT value FROM meta WHERE key = 'epoch'") == before
    assert len(replicas.noted("begin")) == 1
    assert {pid for pid, _ in replicas.noted("begin")} == {new.running.pid}
    epochs = [int(epoch) for epoch in replicas.sql("SELECT epoch FROM inputs ORDER BY seq")]
    assert epochs == sorted(epochs)
    assert "another replica leads" in old.log.read_text() or "has ended" in old.log.read_text()


def test_a_standby_says_so_and_takes_nothing(replicas: Replicas) -> None:
    leader = replicas.leader()
    other = next(r for r in replicas.all if r is not leader)
    until(lambda: other.health() == {"ready": False, "role": "standby", "error": "another replica leads"}, "words")
    assert requests.get(f"{other.url}/livez", timeout=10).status_code == 200
    headers = {"Authorization": f"Bearer {replicas.tokens['n1']}"}
    refused = requests.post(f"{other.url}/v1/nodes/n1/report", report(), headers=headers, timeout=10)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "is a standby" in refused.json()["error"]
    assert "remediator_leading 0.0" in requests.get(f"{other.url}/metrics", timeout=10).text
    until(lambda: "remediator_leading 1.0" in requests.get(f"{leader.url}/metrics", timeout=10).text, "it leads")


def test_a_database_that_is_away_for_a_while_loses_nothing(tmp_path: Path) -> None:
    """A server of its own, crashed and started again under two replicas."""
    if why := postgresql.why_not():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="gh-pg-") as place:
        Path(place).chmod(0o755)
        with postgresql.running(Path(place) / "pg") as cluster:
            replicas = Replicas(tmp_path, cluster, 2)
            replicas.start()
            try:
                _without_a_database(replicas, cluster)
            finally:
                replicas.close()


def _without_a_database(replicas: Replicas, cluster: postgresql.Cluster) -> None:
    tell(replicas)
    leader = replicas.leader()
    cluster.stop("immediate")
    headers = {"Authorization": f"Bearer {replicas.tokens['n1']}"}
    body = report(seq=next(SEQ), findings=(FINDING,))

    def refused() -> bool:
        """At first it waits for the disk within the request, then nothing is taken any more."""
        answer = requests.post(f"{leader.url}/v1/nodes/n1/report", body, headers=headers, timeout=60)
        assert answer.status_code == 503, "nothing is acknowledged"
        return answer.status_code == 503 and "retry-after" in answer.headers

    until(refused, "it is not told to come again")
    until(lambda: (leader.health() or {"ready": True})["ready"] is False, "it says it is ready")
    assert requests.get(f"{leader.url}/livez", timeout=10).status_code == 200, "not a reason to restart it"
    assert replicas.held() == [], "and nothing is begun"
    cluster.start()
    tell(replicas, FINDING)
    until(lambda: replicas.held() == ["n1"], "it goes on")
    assert len(replicas.sql("SELECT id FROM findings")) == 1
    assert len(replicas.sql("SELECT id FROM incidents")) == 1
    epochs = [int(epoch) for epoch in replicas.sql("SELECT epoch FROM inputs ORDER BY seq")]
    assert epochs == sorted(epochs)
