"""The gRPC server: one method, on one UNIX socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from healthctl.node_check.output_formats import CRITICAL, OK, UNKNOWN, NodeJudgement
from healthctl.nvhcd.protobuf_messages import HealthCheckResponse, decode_arguments, encode_response

SERVICE, METHOD = "nvhcd.HealthCheckService", "RunHealthCheck"
SOCKET_MODE = 0o666  # the launcher runs as its user, and the verdict is not secret
THREADS = 4


def build_response(judgement: NodeJudgement, reasons: tuple[str, ...], *, pass_unknown: bool) -> HealthCheckResponse:
    """The verdict in the launcher's format: the launcher excludes this node on anything but success."""
    success = judgement.state not in (CRITICAL, UNKNOWN) or (judgement.state == UNKNOWN and pass_unknown)
    failed = [] if success else list(reasons or (judgement.text,))
    output = json.dumps({"fail_count": len(failed), "failed_checks": failed})
    return HealthCheckResponse(success, OK if success else judgement.state, output, "" if success else judgement.text)


class HealthCheckServer:
    """Serves until stopped.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, socket: Path, judge: Callable[[], HealthCheckResponse]) -> None:
        self._socket = socket
        self._judge = judge
        self._server = grpc.server(ThreadPoolExecutor(THREADS))
        method = grpc.unary_unary_rpc_method_handler(
            self._answer, request_deserializer=decode_arguments, response_serializer=encode_response
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),))
        try:
            bound = self._server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise OSError(f"{socket}: cannot be bound: {error}") from error
        if not bound:
            raise OSError(f"{socket}: cannot be bound")

    def start(self) -> None:
        """Start serving; any user of this node may connect."""
        self._server.start()
        self._socket.chmod(SOCKET_MODE)

    def stop(self) -> None:
        """Finish running requests, then stop."""
        self._server.stop(grace=1.0).wait()

    def _answer(self, arguments: tuple[str, ...], context: grpc.ServicerContext) -> HealthCheckResponse:  # noqa: ARG002 - gRPC's signature; arguments are of another's script
        return self._judge()
