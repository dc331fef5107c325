"""Row hammering with simulated activations: which words it leaves out, what it concludes and says."""

from __future__ import annotations

import importlib.util

import pytest

torch = pytest.importorskip("torch")

from preflight.check_context import Context, Device  # noqa: E402 - torch is optional
from preflight.checks import row_hammer  # noqa: E402 - torch is optional
from preflight.checks.memory_diagnosis import MemoryFaultKind  # noqa: E402 - torch is optional
from preflight.checks.row_hammer import check_row_hammer, judge_repeat  # noqa: E402 - torch is optional
from preflight.kernels.aggressor_lines import (  # noqa: E402 - torch is optional
    LINE_BYTES,
    SIDES,
    STRIDES,
    Aggressors,
    Layout,
    choose_aggressors,
    find_neighbour,
    locate_start,
    restore_aggressors,
)
from preflight.kernels.memory_errors import Errors, Piece, WrongWord  # noqa: E402 - torch is optional
from preflight.kernels.memory_patterns import HASH, Pattern  # noqa: E402 - torch is optional
from preflight.kernels.memory_sweeps import verify_pieces  # noqa: E402 - torch is optional
from preflight.kernels.torch_memory import TorchWay  # noqa: E402 - torch is optional
from preflight.plan import LEVELS  # noqa: E402 - torch is optional
from preflight.results import Outcome, Result, Verdict  # noqa: E402 - torch is optional
from preflight.run_verdict import judge_run  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_checks import SMALL  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_cuda import PRODUCT, DeviceMapping, install_cuda  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_rows import hammer_simulated_rows, install_rows  # noqa: E402 - torch is optional

pytestmark = pytest.mark.torch
GPU = Device(name="cuda:1", torch_name="cuda:1", index=1, label=PRODUCT, uuid="GPU-1", product=PRODUCT)
HOST = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory")
PATTERN = Pattern("random", HASH, seed=3)
WORDS = (5003, 40, 4099)  # no whole number of lines, and a piece too small for most groups


def run(fault: str = "", device: Device = GPU, told: list[str] | None = None) -> Result:
    note = (told if told is not None else []).append
    context = Context(device=device, devices=(device,), level="burn-in", seconds=0.0, fault=fault, note=note)
    (result,) = check_row_hammer(context)
    assert (result.test, result.device) == (row_hammer.TEST, device.name)
    return result


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A simulated GPU whose lines lose their words when they are read."""
    state = install_cuda(monkeypatch)
    install_rows(monkeypatch)
    monkeypatch.setattr("preflight.kernels.gpu_memory_allocation.RESERVE_BYTES_MIN", 24 << 20)
    for name, value in SMALL["row_hammer"].items():
        monkeypatch.setattr(row_hammer, name, value)
    with DeviceMapping(state):
        torch.cuda.set_device(GPU.torch_name)
        yield monkeypatch


def make_pieces(skipped: int = 0) -> list[Piece]:
    """Allocations that start `skipped` words behind a line's start."""
    pieces, base = [], 0
    for words in WORDS:
        room = torch.zeros(words + 32, dtype=torch.int64)
        first = -room.data_ptr() % LINE_BYTES // 8 + skipped
        pieces.append(Piece(room[first : first + words], base))
        base += words
    return pieces


def list_lines(aggressors: Aggressors) -> set[int]:
    """Every byte address that a kernel reads."""
    starts = aggressors.list_addresses().tolist()
    return {start + side * aggressors.layout.stride for start in starts for side in range(aggressors.layout.sides)}


def assert_only_lines_are_restored(aggressors: Aggressors) -> None:
    """In memory whose words are all wrong, those and only those of the lines become right."""
    lines = list_lines(aggressors)
    for piece in aggressors.pieces:
        TorchWay().write(piece, PATTERN.inverted())
    restore_aggressors(aggressors, PATTERN)
    for piece in aggressors.pieces:
        right = Piece(torch.empty_like(piece.memory), piece.base)
        TorchWay().write(right, PATTERN)
        restored = (piece.memory == right.memory).nonzero().flatten() * 8 + piece.memory.data_ptr()
        inside = {address for address in restored.tolist() if address // LINE_BYTES * LINE_BYTES in lines}
        assert set(restored.tolist()) == inside
        first, end = piece.memory.data_ptr(), piece.memory.data_ptr() + piece.memory.numel() * 8
        own = {line for line in lines if first <= line < end}
        assert len(inside) == 16 * len(own), "whole lines"
        lines -= own
    assert not lines, "all lie in a piece"


def test_it_runs_in_burn_in_only() -> None:
    assert [level for level, tests in LEVELS.items() if row_hammer.TEST in tests] == ["burn-in"]


@pytest.mark.parametrize("skipped", [0, 1, 15])
@pytest.mark.parametrize("number", range(4))
def test_the_words_left_out_are_the_lines_that_were_read_and_no_others(skipped: int, number: int) -> None:
    aggressors = choose_aggressors(make_pieces(skipped), number, 5)
    assert aggressors is not None
    assert aggressors.groups == 5
    assert all(line % LINE_BYTES == 0 for line in list_lines(aggressors))
    assert_only_lines_are_restored(aggressors)


@pytest.mark.parametrize("skipped", [0, 1, 15])
@pytest.mark.parametrize("layout", [Layout(1024, 2), Layout(1024, 24), Layout(4096, 8)])
def test_groups_reach_the_ends_of_pieces_and_not_beyond(skipped: int, layout: Layout) -> None:
    pieces = make_pieces(skipped)
    places = []
    for draw in range(sum(WORDS)):
        try:
            places.append(locate_start(pieces, layout, draw))
        except IndexError:
            break
    for number in (0, 2):
        words = [word for piece, word in places if piece == number]
        first, last = words[0], words[-1] + (layout.sides - 1) * layout.stride // 8 + 16
        assert first == -skipped % 16
        assert WORDS[number] - 16 < last <= WORDS[number], "the last whole line"
        assert words == list(range(first, words[-1] + 1, 16))
        starts = [torch.tensor([words[0], words[-1]] if each == number else [], dtype=torch.int64) for each in range(3)]
        assert_only_lines_are_restored(Aggressors(pieces, layout, tuple(starts)))
    assert all(piece != 1 for piece, _ in places), "too small for a group"


def test_every_layout_that_fits_comes_before_one_comes_again() -> None:
    pieces = [Piece(torch.zeros(64 << 10, dtype=torch.int64))]
    fitting = {Layout(stride, sides) for stride in STRIDES for sides in SIDES if (sides - 1) * stride < 512 << 10}
    chosen = [choose_aggressors(pieces, number, 1) for number in range(len(fitting))]
    assert {each.layout for each in chosen if each} == fitting
    assert [each.layout.stride for each in chosen if each] != sorted(each.layout.stride for each in chosen if each)
    assert choose_aggressors([Piece(torch.zeros(100, dtype=torch.int64))], 0, 1) is None


def test_the_word_of_an_injected_fault_is_in_no_line_that_was_read() -> None:
    pieces = make_pieces()
    for number in range(8):
        aggressors = choose_aggressors(pieces, number, 40)
        assert aggressors is not None
        piece, word = find_neighbour(aggressors)
        address = pieces[piece].memory.data_ptr() + word * 8
        assert address // LINE_BYTES * LINE_BYTES not in list_lines(aggressors)


def test_sound_memory_passes_though_the_lines_lost_their_words(rows: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    result = run(told=told)
    assert (result.outcome, result.reason) == (Outcome.PASS, "")
    assert {name: result.evidence[name] for name in ("rounds", "groups")} == {"rounds": 1, "groups": 32}
    assert int(result.evidence["reads"]) > 0
    assert int(result.evidence["activations_per_s"]) > 0
    assert str(result.evidence["strides_kib"]).isdecimal()
    assert any(each.startswith("cuda:1: hammering ") for each in told)


def test_words_that_fall_each_time_fail_the_gpu_and_are_named(rows: pytest.MonkeyPatch) -> None:
    result = run("victim_bit")
    assert result.outcome is Outcome.FAIL
    assert result.reason.startswith(
        "1 wrong read in random: correct until rows near them were activated, "
        "and the same words are wrong when that is repeated; first: allocation 0 + 0x"
    )
    assert "bits 37; virtual page" in result.reason
    assert (result.evidence["kind"], result.evidence["wrong_words"]) == ("hammered", 1)
    assert (result.locations[0].gpu, result.locations[0].address[:2]) == ("GPU-1", "0x")
    assert {"stride_kib", "sides"} <= set(result.evidence)
    assert judge_run([row_hammer.TEST], [result])[0] is Verdict.FAIL


def test_one_flip_that_does_not_repeat_is_inconclusive(rows: pytest.MonkeyPatch) -> None:
    result = run("one_flip")
    assert result.outcome is Outcome.ERROR
    assert (
        "correct until rows near them were activated, and also when that was repeated: it may have been a particle"
        in (result.reason)
    )
    assert judge_run([row_hammer.TEST], [result])[0] is Verdict.INCONCLUSIVE


def test_memory_that_is_wrong_before_it_is_hammered_is_a_memory_fault(rows: pytest.MonkeyPatch) -> None:
    class StuckWay(TorchWay):
        def write(self, piece: Piece, pattern: Pattern) -> None:
            super().write(piece, pattern)
            piece.memory[777] |= 1 << 9

    def refuse(*_: object) -> None:
        raise AssertionError("hammered")

    rows.setattr("preflight.checks.memory_allocation.TorchWay", StuckWay)
    rows.setattr(row_hammer, "restore_aggressors", refuse)
    result = run()
    assert result.outcome is Outcome.FAIL
    assert "bit 9 of one word is stuck at 1" in result.reason
    assert result.evidence["kind"] == "stuck_bit"


def make_errors(*addresses: int) -> Errors:
    listed = tuple(WrongWord(0, address, address * 8, 0, 1, 1) for address in addresses)
    return Errors("random", len(listed), (len(listed),) + (0,) * 63, listed)


@pytest.mark.parametrize(
    ("again", "outcome", "kind"),
    [
        ((5, 9), Outcome.FAIL, MemoryFaultKind.HAMMERED),
        ((6,), Outcome.FAIL, MemoryFaultKind.INTERMITTENT),
        ((), Outcome.ERROR, MemoryFaultKind.CHANGED_ONCE),
    ],
)
def test_the_repeat_decides(again: tuple[int, ...], outcome: Outcome, kind: MemoryFaultKind) -> None:
    judged, diagnosis = judge_repeat(make_errors(4, 5), make_errors(*again))
    assert (judged, diagnosis.kind) == (outcome, kind)


def test_the_repeat_reads_the_same_lines_and_writes_the_same_words(rows: pytest.MonkeyPatch) -> None:
    seen = []

    def hammer(aggressors: Aggressors, turns: int) -> None:
        if turns > 1:  # one is to compile
            seen.append((sorted(list_lines(aggressors)), int(aggressors.pieces[0].memory[3])))
        hammer_simulated_rows(aggressors, turns)

    rows.setattr(row_hammer, "load_kernels", lambda: hammer)
    run("victim_bit")
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_an_older_gpu_is_not_tested(rows: pytest.MonkeyPatch) -> None:
    rows.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert run().outcome is Outcome.NOT_APPLICABLE


@pytest.mark.skipif(bool(importlib.util.find_spec("triton")), reason="there is a Triton here")
def test_without_triton_a_gpu_is_not_tested_and_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with DeviceMapping(install_cuda(monkeypatch)):
        result = run()
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert result.reason == "not tested, because Triton does not work here: No module named 'triton'"


def test_a_host_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    result = run(device=HOST)
    assert (result.outcome, result.reason) == (
        Outcome.NOT_APPLICABLE,
        "it activates rows of a GPU's memory only",
    )


def test_lines_that_get_no_words_back_would_be_found() -> None:
    pieces = make_pieces()
    for piece in pieces:
        TorchWay().write(piece, PATTERN)
    aggressors = choose_aggressors(pieces, 1, 5)
    assert aggressors is not None
    hammer_simulated_rows(aggressors, 1)
    assert verify_pieces(TorchWay(), pieces, PATTERN).wrong == 16 * len(list_lines(aggressors))
    restore_aggressors(aggressors, PATTERN)
    assert verify_pieces(TorchWay(), pieces, PATTERN).wrong == 0
