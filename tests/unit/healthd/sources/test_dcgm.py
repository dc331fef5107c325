from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.dcgm_checks import DcgmCheck, Limits
from healthd.collectors.dcgm import (
    DcgmIncident,
    DcgmProfile,
    DcgmSample,
    parse_dcgm_health,
    parse_dmon_table,
    parse_exporter_page,
    read_dcgm,
)
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise
from vocabulary.finding import Severity

# Made after the source of dcgmi 3 (dcgmi/Health.cpp, DcgmiOutput.cpp): no host engine was asked.
HEALTH = {
    "header": ["Health Monitor Report"],
    "body": {
        "Overall Health": {"value": "Failure"},
        "GPU": {
            "children": {
                "3": {
                    "value": "Failure",
                    "children": {
                        "Errors": {
                            "children": {
                                "Memory system": {"value": "Failure", "overflow": ["A DBE was", "detected."]},
                                "PCIe system": {"value": "Warning", "overflow": ["Replays."]},
                            }
                        }
                    },
                }
            }
        },
    },
}
TABLE = "#Entity   SMACT  TENSO  DRAMA  PCITX  PCIRX\nID\nGPU 0     0.931  0.410  N/A  1000000  9223372036854775794\n"
PAGE = (
    "# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\n"
    'DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-1",modelName="{a}"} 0.5\n'
    'DCGM_FI_DEV_GPU_TEMP{gpu="1"} 40\n'
)


class WithDcgmi(MachineAccess):
    """A machine whose dcgmi gives these answers, by its first word."""

    def __init__(self, root: Path, **answers: tuple[int, str]) -> None:
        super().__init__(str(root))
        self._dcgmi = answers

    def run(self, command: Sequence[str], deadline_s: float) -> tuple[int, str]:  # noqa: ARG002 - the machine's signature
        """As given."""
        if not self._dcgmi:
            raise SourceAbsent("no program dcgmi on PATH")
        return self._dcgmi[command[1]]


def test_the_host_engines_incidents_are_read_and_no_profile_unless_asked_for(tmp_path: Path) -> None:
    machine = WithDcgmi(tmp_path, health=(0, json.dumps(HEALTH)), dmon=(0, TABLE))
    incidents = (
        DcgmIncident("GPU 3", "Memory system", "Failure", "A DBE was detected."),
        DcgmIncident("GPU 3", "PCIe system", "Warning", "Replays."),
    )
    assert read_dcgm(machine, {}) == DcgmSample("dcgmi", True, incidents, ())
    assert read_dcgm(machine, {"profile": ("yes",)}).profiles == (DcgmProfile(0, 0.931, 0.41, None, 1e6, None),)


def test_a_host_engine_that_watches_nothing_says_so(tmp_path: Path) -> None:
    text = "Error: Health watches not enabled. Please enable watches.\n"
    assert read_dcgm(WithDcgmi(tmp_path, health=(255, text)), {}) == DcgmSample("dcgmi", False, (), ())


def test_neither_engine_nor_exporter_is_a_state(tmp_path: Path) -> None:
    with pytest.raises(SourceAbsent, match=r"no program dcgmi on PATH; and no dcgm-exporter at 127\.0\.0\.1:1"):
        read_dcgm(WithDcgmi(tmp_path), {"exporter": ("127.0.0.1:1",)})
    machine = WithDcgmi(tmp_path, health=(1, "Error: unable to establish a connection to the specified host\n"))
    with pytest.raises(SourceAbsent, match="unable to establish a connection"):
        read_dcgm(machine, {"exporter": ("127.0.0.1:1",)})


class _Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


def test_an_exporter_serves_where_no_engine_answers(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Exporter) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"127.0.0.1:{server.server_address[1]}"
        sample = read_dcgm(WithDcgmi(tmp_path), {"exporter": (address,)})
        thread.join()
    assert sample == DcgmSample(address, False, (), (DcgmProfile(1, 0.5, None, None, None, None),))


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)
    )
)
def test_any_json_can_be_read(value: object) -> None:
    for document in (value, {"body": value}, {"body": {"GPU": {"children": value}}}):
        assert isinstance(parse_dcgm_health(json.dumps(document)), tuple)


@given(st.text())
def test_any_table_and_any_page_can_be_read(text: str) -> None:
    assert isinstance(parse_dmon_table(text), tuple)
    assert isinstance(parse_exporter_page(text), tuple)


def test_an_incident_is_a_level_with_dcgms_own_words() -> None:
    incidents = (
        DcgmIncident("GPU 3", "NVLINK system", "Failure", "Link 4 is down."),
        DcgmIncident("GPU 0", "x", "Healthy", ""),
    )
    check = DcgmCheck(Limits(failure_is_error=1))
    (fact,) = check.judge(DcgmSample("dcgmi", True, incidents, ()), Moment(0, 0))
    assert isinstance(fact, Raise)
    assert (fact.code, fact.severity) == ("nvlink", Severity.ERROR)
    assert "Link 4 is down." in fact.summary
    assert check.judge(DcgmSample("dcgmi", True, (), ()), Moment(0, 0)) == []
