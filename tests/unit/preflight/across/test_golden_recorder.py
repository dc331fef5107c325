from __future__ import annotations

import json
from pathlib import Path

import msgspec
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Device
from preflight.commands.goldens_command import goldens
from preflight.device_comparison.device_digests import ComputedDigests
from preflight.device_comparison.golden_recorder import record_goldens
from preflight.results import DOCUMENT_VERSION, Document, Outcome, Result, Verdict

H100 = "NVIDIA H100, sm_90, 132 SMs, torch 2.11"
WORK = "bf16 8192 seed 20241"
KNOWN = {H100: {WORK: "aaaa"}}


def document(
    node: str, *digests: str, verdict: Verdict = Verdict.PASS, injected: tuple[str, ...] = (), votes: bool = True
) -> Document:
    results = [
        Result(
            test="matmul_repeat",
            outcome=Outcome.PASS,
            device=f"cuda:{i}",
            evidence=ComputedDigests(platform=H100, votes=votes, digests={WORK: digest}).evidence(),
        )
        for i, digest in enumerate(digests)
    ]
    devices = [
        Device(name=f"cuda:{i}", torch_name=f"cuda:{i}", index=i, label="GPU", uuid=f"GPU-{node}-{i}")
        for i in range(len(digests))
    ]
    return Document(
        version=DOCUMENT_VERSION,
        level="gate",
        node=node,
        complete=True,
        rounds=1,
        verdict=verdict,
        reason="",
        reasons=(),
        injected=injected,
        started_at=0.0,
        seconds=1.0,
        devices=tuple(devices),
        software={},
        results=tuple(results),
    )


def test_three_devices_that_agree_teach_and_two_do_not() -> None:
    taught = record_goldens([document("n0", "aaaa", "aaaa"), document("n1", "aaaa")], {})
    assert (taught.goldens, taught.new, taught.refused) == (KNOWN, 1, ())
    few = record_goldens([document("n0", "aaaa", "aaaa")], {})
    assert few.goldens == {}
    assert "2 devices computed it, 3 must agree" in few.refused[0]


def test_the_same_device_twice_is_one_device() -> None:
    again = [document("n0", "aaaa") for _ in range(3)]
    assert record_goldens(again, {}).new == 0


def test_devices_that_differ_teach_nothing_and_the_odd_one_is_named() -> None:
    taught = record_goldens([document("n0", "aaaa", "aaaa", "aaaa", "bbbb")], {})
    assert taught.goldens == {}
    assert "GPU-n0-3" in taught.refused[0]


@given(st.sampled_from([verdict for verdict in Verdict if verdict is not Verdict.PASS]), st.permutations(range(3)))
def test_a_node_with_any_document_that_is_no_pass_teaches_nothing(verdict: Verdict, order: list[int]) -> None:
    bad = document("bad", "bbbb", "bbbb", "bbbb", verdict=verdict)
    documents = [bad, document("bad", "bbbb", "bbbb", "bbbb"), document("n1", "aaaa", "aaaa", "aaaa")]
    taught = record_goldens([documents[i] for i in order], {})
    assert taught.goldens == KNOWN
    assert f"bad: not recorded, one of its documents has the verdict {verdict.value}" in taught.refused


def test_an_injected_fault_and_a_part_of_a_card_teach_nothing() -> None:
    injected = document("n0", *["aaaa"] * 3, injected=("memory_pattern:bit_flip",))
    assert record_goldens([injected], {}).goldens == {}
    assert record_goldens([document("n0", *["aaaa"] * 3, votes=False)], {}).goldens == {}


def test_what_is_on_record_stays_unless_it_is_to_be_replaced() -> None:
    three = [document("n0", *["bbbb"] * 3)]
    kept = record_goldens(three, KNOWN)
    assert (kept.goldens, kept.new) == (KNOWN, 0)
    assert "find out which device is wrong" in kept.refused[0]
    assert record_goldens(three, KNOWN, replace=True).goldens == {H100: {WORK: "bbbb"}}
    assert record_goldens([document("n0", *["aaaa"] * 3)], KNOWN).confirmed == 1


def test_the_command_writes_what_it_learned_and_says_what_it_did_not(tmp_path: Path) -> None:
    kept, good, bad = tmp_path / "goldens.json", tmp_path / "good.json", tmp_path / "bad.json"
    good.write_bytes(msgspec.json.encode(document("n0", *["aaaa"] * 3)))
    bad.write_bytes(msgspec.json.encode(document("n1", "bbbb", verdict=Verdict.FAIL)))

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(goldens, [*words, "--goldens", str(kept)])
        return done.exit_code, done.output

    assert run("show")[1].startswith(f"{kept}: no goldens yet")
    assert run("record", str(bad))[0] == 3
    assert not kept.exists()
    code, said = run("record", str(good), str(bad))
    assert code == 0
    assert "not recorded: n1: not recorded" in said
    assert json.loads(kept.read_text()) == KNOWN
    assert H100 in run("show")[1]
    kept.write_text("[]")
    assert run("record", str(good))[0] == 3
    assert kept.read_text() == "[]"
