"""Sampling of fixed products: when one is due, what a digest that differs leads to, and that training never waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from healthd.trainer import product_sampling
from healthd.trainer.adapters import product_digests
from healthd.trainer.adapters.product_digests import CpuProducts, make_factors
from healthd.trainer.beacons.beacon import Beacon, NullBeacon, RankPlacement, read_page
from healthd.trainer.beacons.beacon_page import SampledDigests
from healthd.trainer.product_sampling import PATTERNS, SHARE, SWITCH, Digest, ProductSampler, begin_and_sample
from vocabulary.clock import ManualClock

COST_S = 0.002
ON = {SWITCH: "1"}


class ScriptedProducts:
    """A device whose digest is its pattern's number, but for the scripted computations; each takes `busy` reads."""

    platform = "P" * 300

    def __init__(self, script: dict[int, str] | None = None, busy: int = 0) -> None:
        self.script, self.busy = script or {}, busy
        self.started: list[int] = []
        self.reads = 0
        self.refuses, self.asked = False, 0

    def start(self, pattern: int) -> int | None:
        self.asked += 1
        if self.refuses:
            return None
        self.started.append(pattern)
        self.reads = 0
        return len(self.started) - 1

    def read(self, product: int) -> Digest | None:
        self.reads += 1
        if self.reads <= self.busy:
            return None
        usual = f"{self.started[product]:016x}"
        return Digest(self.script.get(product, usual), COST_S)


class SampledRank:
    """A rank that calls its sampler before each step of a second; `told` is what it published."""

    def __init__(self, products: ScriptedProducts) -> None:
        self.clock, self.products = ManualClock(), products
        self.told: list[SampledDigests] = []
        self.sampler = ProductSampler(products, self.told.append, self.clock.monotonic)
        self.step = 0

    def run(self, steps: int, seconds: float = 30.0) -> SampledDigests:
        for _ in range(steps):
            self.clock.advance(seconds)
            self.sampler.look(self.step)
            self.step += 1
        return self.told[-1]


def test_a_digest_counts_once_it_was_computed_twice() -> None:
    rank = SampledRank(ScriptedProducts())
    told = rank.run(3 * PATTERNS)
    assert rank.products.started[:4] == [0, 0, 1, 1]
    assert told == SampledDigests("P" * 255, tuple(f"{each:016x}" for each in range(PATTERNS)))
    assert len(rank.told) == PATTERNS
    rank.run(100)
    assert len(rank.told) == PATTERNS, "right digests are no news"


WARM = 2 * PATTERNS  # products until all patterns are known


@pytest.mark.parametrize(
    ("script", "contradictions", "transients"),
    [
        ({WARM + 1: "a" * 16}, 0, 1),
        ({WARM + 1: "a" * 16, WARM + 2: "a" * 16}, 1, 0),
        ({WARM + 1: "a" * 16, WARM + 2: "b" * 16}, 1, 0),
        ({WARM + 1: "a" * 16, WARM + 6: "b" * 16}, 0, 2),
        ({0: "a" * 16}, 0, 1),  # nothing was known of this pattern yet
    ],
    ids=["once", "repeated", "differently", "twice", "first"],
)
def test_a_digest_that_differs_is_computed_again_at_once(
    script: dict[int, str], contradictions: int, transients: int, caplog: pytest.LogCaptureFixture
) -> None:
    rank = SampledRank(ScriptedProducts(script))
    told = rank.run(60)
    assert (told.contradictions, told.transients) == (contradictions, transients)
    at = min(script)
    assert rank.products.started[at] == rank.products.started[at + 1]
    assert told.digests == tuple(f"{each:016x}" for each in range(PATTERNS)), "a wrong digest replaces none"
    assert (told.last_good_step >= 0) == (at > WARM)
    assert caplog.messages[0].startswith("a product of pattern")


def test_the_last_good_step_is_the_last_right_sample_before_the_first_wrong_one() -> None:
    rank = SampledRank(ScriptedProducts({WARM + 2: "a" * 16, WARM + 3: "a" * 16}))
    told = rank.run(40)
    before, bad = rank.told[PATTERNS - 1], told.last_good_step
    assert before.last_good_step < bad < 40
    rank.run(40)
    assert rank.sampler._record.last_good_step == bad


@pytest.mark.parametrize("step_s", [0.01, 0.3, 7.0])
def test_the_interval_follows_from_the_cost(step_s: float) -> None:
    rank = SampledRank(ScriptedProducts())
    rank.run(4000, step_s)
    spent = len(rank.products.started) * COST_S
    assert spent <= SHARE * rank.clock.monotonic() + 2 * COST_S
    if step_s < COST_S / SHARE:
        assert spent > 0.5 * SHARE * 4000 * step_s


def test_a_product_that_is_not_complete_is_read_at_a_later_step() -> None:
    rank = SampledRank(ScriptedProducts(busy=5))
    told = rank.run(13)
    assert rank.products.started == [0, 0], "started in steps 0 and 6, read in steps 6 and 12"
    assert told.digests == (f"{0:016x}", "", "", "")


def test_a_device_that_takes_no_product_now_is_asked_later() -> None:
    rank = SampledRank(ScriptedProducts())
    rank.products.refuses = True
    for _ in range(5):
        rank.clock.advance(30.0)
        rank.sampler.look(0)
    for _ in range(100):
        rank.clock.advance(0.01)
        rank.sampler.look(0)
    assert rank.products.asked <= 5 + 2, "not in each step"
    rank.products.refuses = False
    assert rank.run(30).digests[0]


def test_a_device_that_fails_is_sampled_no_more(caplog: pytest.LogCaptureFixture) -> None:
    rank = SampledRank(ScriptedProducts())
    rank.run(6)
    rank.products.script = None  # type: ignore[assignment] # as a lost device, it raises
    rank.run(50)
    assert [line for line in caplog.messages if "no longer sampled" in line] == [caplog.messages[-1]]


@pytest.fixture
def beacon(tmp_path: Path) -> Iterator[Beacon]:
    tmp_path.chmod(0o700)
    made = Beacon.create(str(tmp_path), RankPlacement("job", 0, 0, 1, 0, "n1"))
    yield made
    made.close()


def test_a_rank_publishes_on_its_page(beacon: Beacon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_sampling, "SHARE", 1e6)
    begin = begin_and_sample(beacon, ON)
    for step in range(30):
        begin(step)
    view = read_page(beacon.path)
    assert view.digests is not None
    assert view.digests.platform.startswith("cpu ")
    assert len({*view.digests.digests}) == PATTERNS
    assert "" not in view.digests.digests
    assert (view.digests.contradictions, view.digests.transients, view.damaged) == (0, 0, {})
    assert view.state.step == 29


def test_who_samples(beacon: Beacon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    null = NullBeacon()
    for environ in ({}, {SWITCH: "0"}, {SWITCH: ""}):
        assert begin_and_sample(beacon, environ) == beacon.begin_step
    assert begin_and_sample(null, ON) == null.begin_step
    monkeypatch.setattr(torch, "mm", lambda *_, **__: 1 / 0)
    begin = begin_and_sample(beacon, ON)
    begin(0)
    assert caplog.messages == ["products are no longer sampled: division by zero; training continues"]
    monkeypatch.setattr(product_digests, "make_factors", lambda *_: 1 / 0)
    assert begin_and_sample(beacon, ON) == beacon.begin_step
    assert caplog.messages[1:] == ["products are not sampled: division by zero; training continues"]


@pytest.mark.parametrize("size", [product_digests.SIZE_ON_CPU, product_digests.SIZE_ON_GPU])
def test_sums_are_exact_in_any_order_and_fit_their_type(size: int) -> None:
    factors = make_factors(size, torch.float16, torch.device("cpu"))
    narrow, wide = factors.narrow.float(), factors.wide.float()
    assert torch.equal(factors.narrow.int(), narrow.int())
    pairs = narrow.reshape(len(narrow), -1, 2), wide.reshape(len(wide), -1, 2)
    assert torch.equal(pairs[0][..., 0], pairs[0][..., 1])
    added = pairs[1].sum(2)
    assert added.abs().max() == 1
    assert (pairs[0][..., 0].abs().double() @ added.abs().double().t()).max() < 1 << 24, "no partial sum is rounded"
    assert (narrow.double() @ wide.double().t()).abs().max() < 2048, "fp16 holds it"
    half = (narrow[:128] @ wide[:128].t()).to(torch.float16)
    assert torch.equal(half.double(), narrow[:128].double() @ wide[:128].double().t())


@pytest.mark.parametrize("bit", [0, 1, 9, 22, 31])
@pytest.mark.parametrize("pattern", range(PATTERNS))
def test_any_wrong_bit_changes_the_digest(bit: int, pattern: int, monkeypatch: pytest.MonkeyPatch) -> None:
    products, right = CpuProducts(), product_digests.multiply
    usual = products.start(pattern).digest

    def multiply(left: torch.Tensor, other: torch.Tensor, product: torch.Tensor) -> None:
        right(left, other, product)
        product.view(torch.int32)[17, 100] ^= -(1 << 31) if bit == 31 else 1 << bit

    assert products.start(pattern).digest == usual
    monkeypatch.setattr(product_digests, "multiply", multiply)
    assert products.start(pattern).digest != usual


def test_threads_and_settings_change_no_digest() -> None:
    usual = [CpuProducts().start(pattern).digest for pattern in range(PATTERNS)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            products = CpuProducts()
            assert [products.start(pattern).digest for pattern in range(PATTERNS)] == usual
    finally:
        torch.set_num_threads(threads)
