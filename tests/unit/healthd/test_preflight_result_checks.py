"""From a preflight's document to findings: who is named, what a pass disproves, and who may say it."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import msgspec
import pytest

from healthd.checks.preflight_result_checks import COMPONENTS_MAX, judge_preflight_sample
from healthd.findings.facts import Clear, Raise
from healthd.findings.finding_ledger import FindingLedger
from healthd.preflight_reports.report_endpoint import PreflightEndpoint
from healthd.preflight_reports.report_queue import PreflightReportQueue
from healthd.samples.preflight import LEVELS, VERDICTS, PreflightSample
from preflight.results import DOCUMENT_VERSION, Document, Location, Outcome, Result, Verdict
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind
from vocabulary.messages.wire import Gpu

GPUS = (Gpu(index=0, uuid="GPU-a", pci="0000:10:00.0"), Gpu(index=1, uuid="GPU-b", pci="0000:11:00.0"))
SOMEBODY = 65534


def document(verdict: Verdict, *results: Result, injected: tuple[str, ...] = (), **more: Any) -> PreflightSample:
    """What a preflight prints, as healthd reads it."""
    fields = dict.fromkeys(Document.__struct_fields__)
    said = {
        **fields,
        "version": DOCUMENT_VERSION,
        "level": "gate",
        "node": "n1",
        "complete": True,
        "verdict": verdict,
        "reason": "because",
        "injected": injected,
        "started_at": 100.0,
        "results": results,
    }
    text = msgspec.json.encode({name: value for name, value in (said | more).items() if value is not None})
    return msgspec.json.decode(text, type=PreflightSample)


def failed(*locations: Location, test: str = "matmul_repeat", outcome: Outcome = Outcome.FAIL) -> Result:
    return Result(test=test, outcome=outcome, device="cuda:1", reason="wrong", locations=locations)


def raised(sample: PreflightSample) -> list[Raise]:
    return [fact for fact in judge_preflight_sample(sample, GPUS, (), 200.0) if isinstance(fact, Raise)]


def test_verdicts_are_those_of_preflight() -> None:
    assert set(VERDICTS) == {verdict.value for verdict in Verdict}


@pytest.mark.parametrize(
    ("place", "kind", "name"),
    [
        (Location(gpu="GPU-b", sm=3), ComponentKind.GPU, "GPU-b"),
        (Location(gpu="GPU-b", link=4), ComponentKind.NVLINK, "GPU-b/4"),
        (Location(nic="mlx5_3"), ComponentKind.NIC_PORT, "mlx5_3"),
        (Location(gpu="cuda:1"), ComponentKind.HOST, "preflight"),
        (Location(path="/scratch"), ComponentKind.HOST, "preflight"),
    ],
)
def test_a_failure_is_of_the_part_that_it_sits_in(place: Location, kind: ComponentKind, name: str) -> None:
    (fact,) = raised(document(Verdict.FAIL, failed(place), Result(test="software", outcome=Outcome.PASS)))
    assert (fact.check, fact.code, fact.severity) == ("preflight", "failed", Severity.ERROR)
    assert (fact.component.kind, fact.component.name) == (kind, name)
    assert fact.summary == "preflight gate: matmul_repeat on cuda:1: wrong"
    assert not fact.injected


def test_failures_of_one_part_are_one_finding_and_of_two_parts_two() -> None:
    sample = document(
        Verdict.FAIL,
        failed(Location(gpu="GPU-a")),
        failed(Location(gpu="GPU-a"), test="memory_pattern", outcome=Outcome.HANG),
        failed(Location(gpu="GPU-b")),
    )
    one, other = raised(sample)
    assert (one.component.index, other.component.index) == (0, 1)
    assert one.evidence["tests"] == "matmul_repeat, memory_pattern"


def test_a_failure_without_a_result_is_still_one() -> None:
    (fact,) = raised(document(Verdict.FAIL))
    assert fact.component.kind is ComponentKind.HOST
    assert "because" in fact.summary


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.MISCONFIGURED])
def test_no_conclusion_is_recorded_and_never_active(verdict: Verdict) -> None:
    ledger = FindingLedger("n1", "boot")
    ledger.apply(judge_preflight_sample(document(verdict, failed(Location(gpu="GPU-a"))), GPUS, (), 200.0))
    assert ledger.active == ()
    assert [(f.kind, f.severity) for f in ledger.changed.values()] == [(f"preflight/{verdict.value}", Severity.INFO)]


@pytest.mark.parametrize(
    ("level", "more", "clears"),
    [
        ("standard", {}, True),
        ("burn-in", {}, True),
        ("gate", {}, False),
        ("group", {}, False),
        ("burn-in", {"complete": False}, False),
        ("burn-in", {"injected": ("memory_pattern:bit_flip",)}, False),
        ("burn-in", {"started_at": 150.0}, False),
    ],
)
def test_a_whole_pass_of_the_same_or_a_deeper_level_disproves(level: str, more: dict[str, Any], clears: bool) -> None:  # noqa: FBT001 - the answer
    ledger = FindingLedger("n1", "boot")
    ledger.apply(
        judge_preflight_sample(document(Verdict.FAIL, failed(Location(gpu="GPU-a")), level="standard"), GPUS, (), 200.0)
    )
    passed = document(Verdict.PASS, **({"level": level, "started_at": 250.0} | more))
    facts = judge_preflight_sample(passed, GPUS, ledger.active, 300.0)
    assert [isinstance(fact, Clear) for fact in facts] == ([True] if clears else [])
    ledger.apply(facts)
    assert len(ledger.active) == (0 if clears else 1)


@pytest.mark.parametrize(
    ("first", "then", "passes", "clears"),
    [
        ("gate", "group", "gate", False),
        ("gate", "group", "standard", True),
        ("gate", "burn-in", "gate", False),
        ("gate", "burn-in", "standard", False),
        ("group", "burn-in", "standard", False),
        ("group", "burn-in", "burn-in", True),
        ("burn-in", "gate", "gate", False),
        ("burn-in", "gate", "burn-in", True),
        ("standard", "group", "standard", True),
        ("group", "standard", "standard", True),
    ],
)
def test_of_two_failures_of_one_part_the_deeper_must_be_disproved(
    first: str,
    then: str,
    passes: str,
    clears: bool,  # noqa: FBT001 - the answer
) -> None:
    ledger = FindingLedger("n1", "boot")
    for at, level in ((200.0, first), (300.0, then)):
        sample = document(Verdict.FAIL, failed(Location(gpu="GPU-a")), level=level, started_at=at - 10)
        ledger.apply(judge_preflight_sample(sample, GPUS, ledger.active, at))
    (finding,) = ledger.active
    deeper = max(first, then, key=LEVELS.index)
    assert (finding.evidence["level"], finding.last_seen) == (deeper, 300.0)
    assert finding.summary.startswith(f"preflight {deeper}:")
    ledger.apply(
        judge_preflight_sample(document(Verdict.PASS, level=passes, started_at=350.0), GPUS, ledger.active, 400.0)
    )
    assert len(ledger.active) == (0 if clears else 1)


def test_so_many_parts_at_once_are_the_host() -> None:
    nics = [failed(Location(nic=f"mlx5_{number}")) for number in range(COMPONENTS_MAX + 1)]
    assert len(raised(document(Verdict.FAIL, *nics[:-1]))) == COMPONENTS_MAX
    (fact,) = raised(document(Verdict.FAIL, *nics))
    assert fact.component.kind is ComponentKind.HOST


def test_a_group_s_failure_ends_by_a_standard_pass_and_by_no_gate() -> None:
    ledger = FindingLedger("n1", "boot")
    ledger.apply(judge_preflight_sample(document(Verdict.FAIL, failed(), level="group"), GPUS, (), 200.0))
    for level, left in (("gate", 1), ("group", 1), ("standard", 0)):
        ledger.apply(
            judge_preflight_sample(document(Verdict.PASS, level=level, started_at=250.0), GPUS, ledger.active, 300.0)
        )
        assert len(ledger.active) == left


def test_a_new_boot_disproves_nothing_that_was_measured() -> None:
    before = FindingLedger("n1", "boot")
    before.apply(judge_preflight_sample(document(Verdict.FAIL, failed()), GPUS, (), 200.0))
    after = FindingLedger("n1", "next boot", before.active)
    after.begin_boot(300.0)
    assert [finding.kind for finding in after.active] == ["preflight/failed"]
    after.prove(400.0, "preflight o1")
    assert after.active == ()


def test_an_injected_failure_is_marked() -> None:
    (fact,) = raised(document(Verdict.FAIL, failed(), injected=("matmul_repeat:nan",)))
    assert fact.injected
    assert fact.evidence["faults"] == "matmul_repeat:nan"


def body(**more: Any) -> bytes:
    return msgspec.json.encode({"verdict": "fail", "level": "gate", "started_at": 1.0} | more)


@pytest.mark.parametrize(
    ("uid", "content", "accept", "code"),
    [
        (0, body(), False, 200),
        (os.geteuid(), body(), False, 200),
        (SOMEBODY, body(), True, 403),
        (None, body(), True, 403),
        (0, b"{}", False, 400),
        (0, b"\xff", False, 400),
        (0, body(level="gate").replace(b"gate", b"g\xff"), False, 400),
        (0, body(verdict="splendid"), False, 400),
        (0, body(level="x" * 100), False, 400),
        (0, body(started_at=1e300), False, 400),
        (0, body(results=[{"test": "t" * 300, "outcome": "fail"}]), False, 400),
        (0, body(results=[{"test": "t", "outcome": "fail", "locations": [{"nic": "n" * 300}]}]), False, 400),
        (0, body(results=[{"test": "t", "outcome": "fail", "locations": [{}] * 65}]), False, 400),
        (0, body(level="gate")[:-1] + b', "deep": ' + b"[" * 100_000, False, 400),
        (0, body(injected=["a:b"]), False, 403),
        (0, body(injected=["a:b"]), True, 200),
    ],
)
def test_only_root_is_heard_and_only_of_documents(uid: int | None, content: bytes, accept: bool, code: int) -> None:  # noqa: FBT001 - a case
    heard: list[PreflightSample] = []
    door = PreflightEndpoint(lambda sample: heard.append(sample) is None, accept_injected=accept)
    assert door.answer(content, uid)[0] == code
    assert len(heard) == (code == 200)


def test_what_could_not_be_written_down_is_not_taken() -> None:
    status, _, said = PreflightEndpoint(lambda _: False, accept_injected=False).answer(body(), 0)
    assert status == 503
    assert "again" in json.loads(said)["todo"]


def test_who_tells_waits_until_it_is_written() -> None:
    woken = threading.Event()
    told = PreflightReportQueue(woken.set)
    answers: list[bool] = []
    teller = threading.Thread(target=lambda: answers.append(told.tell(document(Verdict.FAIL))))
    teller.start()
    assert woken.wait(30)
    taken = told.take()
    assert taken is not None
    assert told.take() is None
    assert not answers
    taken[1]()
    teller.join(30)
    assert answers == [True]
