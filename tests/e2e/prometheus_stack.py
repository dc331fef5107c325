"""A real Prometheus, a real Alertmanager, and somebody who is told, each on a free port."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import requests
import yaml
from healthd_node import eventually

from tests.conftest import skip_or_fail

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards/prometheus"
ROUTES = ROOT / "dashboards/alertmanager/alertmanager.yaml"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Program:
    """A server in a process of its own."""

    ready = "/-/ready"

    def __init__(self, place: Path, name: str, *options: str) -> None:
        if shutil.which(name) is None:
            skip_or_fail(f"no {name} here (tests/system_packages.sh)")
        place.mkdir()
        self.place = place
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [name, f"--web.listen-address=127.0.0.1:{self.port}", *options, "--log.level=warn"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.place / "log").open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        eventually(self._is_ready, self._log)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def get(self, path: str, **query: Any) -> Any:
        answer = requests.get(self.url + path, params=query, timeout=30)
        assert answer.ok, f"{query}: {answer.text}"
        return answer.json()

    def _log(self) -> str:
        return (self.place / "log").read_text()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        try:
            return requests.get(self.url + self.ready, timeout=1).ok
        except requests.ConnectionError:
            return False


class Alertmanager(Program):
    """With the shipped routes, in a hurry."""

    def __init__(self, place: Path, receiver: str = "http://127.0.0.1:9") -> None:
        config = place / "alertmanager.yaml"
        options = (f"--config.file={config}", f"--storage.path={place}/data", "--cluster.listen-address=")
        super().__init__(place, "prometheus-alertmanager", *options)
        text = ROUTES.read_text().replace("http://127.0.0.1:9095", receiver)
        config.write_text(re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", text))


class Prometheus(Program):
    """With the shipped rules, in a hurry: what must hold for minutes must hold for one second."""

    def __init__(self, place: Path, scrapes: Sequence[dict[str, Any]], alertmanager: Alertmanager) -> None:
        config = place / "prometheus.yaml"
        super().__init__(place, "prometheus", f"--config.file={config}", f"--storage.tsdb.path={place}/data")
        (place / "recording.yaml").write_text(_hurried((RULES / "recording.yaml").read_text()))
        (place / "alerts.yaml").write_text(_hurried((RULES / "alerts.yaml").read_text()))
        document = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["recording.yaml", "alerts.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager.port}"]}]}]},
            "scrape_configs": list(scrapes),
        }
        config.write_text(yaml.safe_dump(document))

    def ask(self, question: str) -> list[dict[str, Any]]:
        """The series that a question has now."""
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=question)["data"]["result"]
        return found


def _hurried(rules: str) -> str:
    return re.sub(r"^( +)(for|interval): \w+$", r"\1\2: 1s", rules, flags=re.MULTILINE)


class Receiver:
    """Remembers which alerts came to which of its paths."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        handler = type("_Handler", (_Handler,), {"receiver": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def told(self, path: str, name: str, status: str = "firing") -> dict[str, Any] | None:
        """The newest alert of a name that came to a path in a status."""
        for where, alert in reversed(self.heard):
            if (where, alert["labels"]["alertname"], alert["status"]) == (path, name, status):
                return alert
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    receiver: ClassVar[Receiver]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.receiver.heard += [(self.path, alert) for alert in body["alerts"]]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
