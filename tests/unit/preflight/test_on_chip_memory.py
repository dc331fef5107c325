"""The test of the memories inside multiprocessors, with simulated programs: what it concludes and says."""

from __future__ import annotations

import importlib.util

import pytest

torch = pytest.importorskip("torch")

from preflight.check_context import Context, Device  # noqa: E402 - torch is optional
from preflight.checks import on_chip_memory  # noqa: E402 - torch is optional
from preflight.checks.on_chip_memory import RoundResult, build_failed_result, check_on_chip_memory  # noqa: E402 - torch is optional
from preflight.kernels.on_chip_words import (  # noqa: E402 - torch is optional
    HELD_WORDS,
    L1,
    LINE_FACTOR,
    LINE_WORDS,
    LISTED,
    NOT_KNOWN,
    REGISTERS,
    SHARED,
    ProgramOutputs,
    WrongWords,
    build_source_words,
    find_wrong_words,
    xor_words,
)
from preflight.plan import LEVELS  # noqa: E402 - torch is optional
from preflight.results import Outcome, Result, Verdict  # noqa: E402 - torch is optional
from preflight.run_verdict import judge_run  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_cuda import PRODUCT, DeviceMapping, install_cuda  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_programs import SMS, install_programs, run_simulated_programs  # noqa: E402 - torch is optional

pytestmark = pytest.mark.torch
GPU = Device(name="cuda:1", torch_name="cuda:1", index=1, label=PRODUCT, uuid="GPU-1", product=PRODUCT)
HOST = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory")


def run(fault: str = "", device: Device = GPU, told: list[str] | None = None) -> Result:
    note = (told if told is not None else []).append
    (result,) = check_on_chip_memory(
        Context(device=device, devices=(device,), level="standard", seconds=0.0, fault=fault, note=note)
    )
    assert result.test == on_chip_memory.TEST
    assert result.device == device.name
    return result


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A simulated GPU whose programs run."""
    state = install_cuda(monkeypatch)
    install_programs(monkeypatch)
    with DeviceMapping(state):
        torch.cuda.set_device(GPU.torch_name)
        yield monkeypatch


def test_it_runs_from_standard_on() -> None:
    assert [level for level, tests in LEVELS.items() if on_chip_memory.TEST in tests] == ["standard", "burn-in"]


def test_a_sound_gpu_passes_on_all_its_multiprocessors(programs: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    result = run(told=told)
    assert (result.outcome, result.reason, result.remarks) == (Outcome.PASS, "", ())
    assert result.evidence["multiprocessors"] == SMS
    assert result.evidence["rounds"] == 1
    assert told[-3:] == [f"cuda:1: round 1, {memory}" for memory in (REGISTERS, SHARED, L1)]


@pytest.mark.parametrize(
    ("fault", "memory"), [("register_bit", "registers"), ("shared_bit", "shared memory"), ("l1_bit", "the L1")]
)
def test_a_wrong_bit_fails_the_gpu_and_names_memory_and_multiprocessor(
    programs: pytest.MonkeyPatch, fault: str, memory: str
) -> None:
    result = run(fault)
    sm = SMS * on_chip_memory.PROGRAMS_OF_SM // 2 % SMS
    assert result.outcome is Outcome.FAIL
    assert result.reason == f"SM {sm}: 1 wrong word in {memory}, bit 5; wrong again when run again"
    assert [(place.gpu, place.sm) for place in result.locations] == [("GPU-1", sm)]
    assert result.evidence["wrong_memories"] == memory
    assert judge_run([on_chip_memory.TEST], [result])[0] is Verdict.FAIL


def test_multiprocessors_without_a_program_are_a_remark(programs: pytest.MonkeyPatch) -> None:
    def run_on_half(*arguments: object) -> ProgramOutputs:
        outputs = run_simulated_programs(*arguments)  # type: ignore[arg-type] # passed on
        return outputs._replace(sms=outputs.sms // 2)

    programs.setattr("preflight.checks.on_chip_memory.load_kernels", lambda: run_on_half)
    result = run()
    assert (result.outcome, result.evidence["multiprocessors"]) == (Outcome.PASS, 2)
    assert result.remarks[0] == "tested on 2 of 4 SMs only: registers"


def test_the_windows_of_the_l1_fit_beside_each_other(programs: pytest.MonkeyPatch) -> None:
    window = on_chip_memory.build_program_load(GPU).window * LINE_WORDS * 4
    assert 0 < window * on_chip_memory.PROGRAMS_OF_SM <= on_chip_memory.L1_UNKNOWN_BYTES


@pytest.mark.skipif(bool(importlib.util.find_spec("triton")), reason="there is a Triton here")
def test_without_triton_a_gpu_is_not_tested_and_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with DeviceMapping(install_cuda(monkeypatch)):
        result = run()
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert result.reason == "not tested, because Triton does not work here: No module named 'triton'"


def test_a_host_has_no_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    result = run(device=HOST)
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, "a processor has no multiprocessors")


def test_the_words_of_each_round_and_line_differ_and_all_flips_cancel() -> None:
    one, two = (build_source_words(seed, 6, 13, "cpu") for seed in (1, 2))
    assert (one.held.numel(), one.held.unique().numel() > HELD_WORDS - 10) == (HELD_WORDS, True)
    assert (one.held != two.held).float().mean() > 0.99
    assert one.lines.shape == (6, LINE_WORDS)
    assert (int(one.lines[5, 3]) ^ int(one.held[3]) ^ 5 * LINE_FACTOR) & 0xFFFF_FFFF == 0
    assert len(one.lines[:, 3].unique()) == 6
    assert one.flips.numel() == 13
    assert (one.flips != 0).all()
    assert xor_words(one.flips) == 0


def test_wrong_words_are_counted_by_multiprocessor() -> None:
    source = build_source_words(1, 2, 13, "cpu")
    words = source.held.repeat(LISTED * 2, 1)
    words[1, 9] ^= 1 << 31
    words[4, 7:9] ^= 6
    words[5, 7] ^= 1
    sms = torch.arange(LISTED * 2) % 3
    found = find_wrong_words(SHARED, ProgramOutputs(words, sms), source)
    assert list(map(str, found)) == [
        "SM 1: 3 wrong words in shared memory, bits 1, 2, 31",
        "SM 2: 1 wrong word in shared memory, bit 0",
    ]
    everywhere = find_wrong_words(L1, ProgramOutputs(words[:, :LINE_WORDS], sms * 0 + NOT_KNOWN), source)
    assert [each.words for each in everywhere] == [LISTED * LINE_WORDS]
    assert str(everywhere[0]).startswith("unknown SM: ")


@pytest.mark.parametrize(
    ("second", "again"),
    [
        ([WrongWords(REGISTERS, 7, 2, 1)], "wrong again"),
        ([WrongWords(REGISTERS, 8, 2, 1)], "wrong elsewhere"),
        ([], "correct"),
    ],
)
def test_the_second_run_is_told(second: list[WrongWords], again: str) -> None:
    first = RoundResult([WrongWords(REGISTERS, 7, 1, 2)], {}, 0)
    result = build_failed_result(GPU, first, RoundResult(second, {}, 0), {"rounds": 3})
    assert result.reason == f"SM 7: 1 wrong word in registers, bit 1; {again} when run again"
    assert (result.evidence["again"], result.evidence["rounds"]) == (again, 3)


def test_many_multiprocessors_are_counted_not_listed() -> None:
    wrong = [WrongWords(L1, sm, 1, 1) for sm in range(20)]
    result = build_failed_result(GPU, RoundResult(wrong, {}, 0), RoundResult([], {}, 0), {})
    assert "SM 7: 1 wrong word in the L1, bit 0; and 12 more; correct" in result.reason
    assert len(result.locations) == 20


def test_words_that_changed_in_memory_accuse_no_multiprocessor(programs: pytest.MonkeyPatch) -> None:
    def run_and_spoil(memory: str, source: object, *rest: int) -> ProgramOutputs:
        outputs = run_simulated_programs(memory, source, *rest)  # type: ignore[arg-type] # passed on
        if memory == L1:
            source.lines[0, 0] ^= 1  # type: ignore[attr-defined] # SourceWords
            outputs.words[0, 0] ^= 1
        return outputs

    programs.setattr("preflight.checks.on_chip_memory.load_kernels", lambda: run_and_spoil)
    result = run()
    assert result.outcome is Outcome.FAIL
    assert result.reason.startswith("1 word changed in the GPU's memory, outside the SMs; seen as SM 0: 1 wrong word")
    assert [place.sm for place in result.locations] == [None]
