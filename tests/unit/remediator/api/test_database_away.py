"""A database that is away is not the caller's fault, and no bug: come again."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DataError, OperationalError

from tests.unit.remediator.api.in_process_controller import Inside


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OperationalError("SELECT", {}, Exception("the server is gone")), 503),
        (DataError("SELECT", {}, Exception("no such value")), 500),
    ],
)
def test_what_the_database_does_to_a_reader(
    shared: Inside, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(shared.service.journal, "incident", failing)
    answer = shared.call("GET", "/v1/incidents/inc-1", "vic")
    assert answer.status == status
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)
    assert "gone" not in answer.json()["error"], "details are for the log"
