"""The fake API server of a run, and its change record: every version of every node that it ever kept, in order."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from tests.chaos.world.journal import Journal
from tests.nodes.fake_kubernetes.cluster import Cluster, enforce, our_rules
from tests.nodes.fake_kubernetes.server import Server

REASON = "gpu-healthd.dev/reason"


class KubernetesHolds:
    """Nodes without pods: the work on them is the launcher's."""

    def __init__(self, place: Path, nodes: tuple[str, ...], journal: Journal) -> None:
        self.server = Server({"centre": our_rules(), "operator": None})
        enforce(self.server, centre="remediator")
        self.server.__enter__()
        self._journal = journal
        self._known = dict.fromkeys(nodes, "")
        self.kubeconfig = place / "kubeconfig"
        entries = {
            "clusters": [{"name": "c", "cluster": {"server": self.server.url}}],
            "users": [{"name": "u", "user": {"token": "centre"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        self.kubeconfig.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **entries})
        )
        cluster = Cluster(self.server, place)
        for node in nodes:
            cluster.node(node)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        store, seen = self.server.store, 0
        while True:
            with store.changed:
                while len(store.past) == seen:
                    store.changed.wait()
                news, seen = store.past[seen:], len(store.past)
            for change in news:
                if change.plural == "nodes" and change.after is not None:
                    self._compare(change.after)

    def _compare(self, thing: dict[str, Any]) -> None:
        node = thing["metadata"]["name"]
        held = bool(thing["spec"].get("unschedulable"))
        reason = (thing["metadata"].get("annotations") or {}).get(REASON, "no reason") if held else ""
        if reason != self._known[node]:
            self._journal.write("scheduler", node=node, held=held, reason=reason)
        self._known[node] = reason
