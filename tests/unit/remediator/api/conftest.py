from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.remediator.api.in_process_controller import Inside


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """One controller for a module's tests, that leave nothing others would trip over."""
    centre = Inside(tmp_path_factory.mktemp("centre"))
    yield centre
    centre.close()
