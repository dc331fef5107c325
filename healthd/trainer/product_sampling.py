"""Samples fixed products on the rank's own device while it trains, to detect silent data corruption.

Between two steps the sampler starts one product and reads its digest at a later step, so that training never waits for
it. A digest that differs from the device's earlier one, and the first of its pattern, is computed again at once. The
results are published on the beacon page; the controller compares the ranks of a job (`remediator.monitoring.sdc_findings`).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from healthd.trainer.beacons.beacon import Beacon, NullBeacon
from healthd.trainer.beacons.beacon_page import NAME_CHARS_MAX, SampledDigests

SWITCH = "HEALTHD_SDC_SAMPLING"  # 0 switches it off; 1 switches it on also without a GPU
SHARE = 0.0005  # of the rank's time for products; with what each step's call adds, 0.1 % at most
REFUSED_S = 1.0  # until a device that cannot take a product is asked again
PATTERNS = 4

_log = logging.getLogger("healthd.trainer")


class Digest(NamedTuple):
    """A product's digest, and how long the device was busy with it."""

    digest: str
    seconds: float


class Products(Protocol):
    """Fixed products on one device. Every device of a platform gets the same digests, whatever algorithm it uses."""

    platform: str

    def start(self, pattern: int) -> Any:
        """Queue the product of one of `PATTERNS` operand patterns; None if the device cannot take it now."""

    def read(self, product: Any) -> Digest | None:
        """Return the digest of a started product; None while it is not complete."""


class ProductSampler:
    """Starts a product once `SHARE` allows it, and records what its digest shows."""

    def __init__(
        self, products: Products, publish: Callable[[SampledDigests], None], monotonic: Callable[[], float]
    ) -> None:
        """Args: `products` of this rank's device; `publish` gets each new result; `monotonic` seconds."""
        self._products: Products | None = products
        self._publish = publish
        self._monotonic = monotonic
        self._record = SampledDigests(products.platform[:NAME_CHARS_MAX], ("",) * PATTERNS)
        self._pattern = 0
        self._first = ""  # the digest that is computed again now
        self._running: Any = None
        self._cost_s = 0.0  # of the running product, for the host
        self._due = 0.0

    def look(self, step: int) -> None:
        """Read or start a product if it is time; called before each step. Never waits and never raises."""
        now = self._monotonic()
        if now < self._due or self._products is None:
            return
        try:
            if self._running is None:
                self._start(self._products, now)
            elif (done := self._products.read(self._running)) is not None:
                self._running = None
                again = self._note(done.digest, step)
                cost_s = self._cost_s + self._monotonic() - now + done.seconds
                self._due = 0.0 if again else now + cost_s / SHARE
                self._cost_s = cost_s if again else 0.0
                if again:
                    self._start(self._products, self._monotonic())
        except Exception as error:  # noqa: BLE001 - a device and torch of any make: training continues
            _log.warning("products are no longer sampled: %s; training continues", error)
            self._products = None

    def _start(self, products: Products, now: float) -> None:
        self._running = products.start(self._pattern)
        after = self._monotonic()
        self._cost_s += after - now
        if self._running is None:
            self._due = after + REFUSED_S

    def _note(self, digest: str, step: int) -> bool:
        """Record a digest; return whether to compute its product again at once."""
        record, known = self._record, self._record.digests[self._pattern]
        first, self._first = self._first, ""
        if not first and digest == known:
            if not (record.contradictions or record.transients):
                self._record = record._replace(last_good_step=step)
        elif not first:
            self._first = digest
            return True
        elif not known and digest == first:
            digests = list(record.digests)
            digests[self._pattern] = digest
            self._record = record._replace(digests=tuple(digests))
            self._publish(self._record)
        else:
            self._record_difference(known, first, digest)
        self._pattern = (self._pattern + 1) % PATTERNS
        return False

    def _record_difference(self, known: str, first: str, digest: str) -> None:
        record = self._record
        if not known or digest == known:
            self._record = record._replace(transients=record.transients + 1)
        else:
            self._record = record._replace(contradictions=record.contradictions + 1)
        self._publish(self._record)
        words = "a product of pattern %d differed from this device's own earlier one (%s, then %s; %s before)"
        _log.error(words, self._pattern, first, digest, known or "none")


def begin_and_sample(beacon: Beacon | NullBeacon, environ: Mapping[str, str] | None = None) -> Callable[[int], None]:
    """Return what begins a step: the beacon's own method, with sampling before it where this rank samples.

    Args:
        beacon: this rank's page.
        environ: for tests.
    """
    products = None
    try:
        if isinstance(beacon, Beacon):
            products = _find_products((os.environ if environ is None else environ).get(SWITCH, ""))
    except Exception as error:  # noqa: BLE001 - as above
        _log.warning("products are not sampled: %s; training continues", error)
    if products is None or not isinstance(beacon, Beacon):
        return beacon.begin_step
    look, begin = ProductSampler(products, beacon.publish_digests, time.monotonic).look, beacon.begin_step

    def sample_and_begin(step: int) -> None:
        look(step)
        begin(step)

    return sample_and_begin


def _find_products(switch: str) -> Products | None:
    """Return the products of the device in use; imports nothing that is not there, and starts no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or switch == "0":
        return None
    on_gpu = torch.cuda.is_initialized()
    if not on_gpu and switch != "1":
        return None
    from healthd.trainer.adapters.product_digests import CpuProducts, CudaProducts  # noqa: PLC0415 - only with torch

    return CudaProducts() if on_gpu else CpuProducts()
