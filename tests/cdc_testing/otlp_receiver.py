"""An endpoint of OTLP that keeps what it gets."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class Receiver:
    """Listens at `url` and puts each request, with its headers, into `got`. Answers with `status`."""

    def __init__(self) -> None:
        self.got: Queue[tuple[ExportMetricsServiceRequest, Mapping[str, str]]] = Queue()
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                request = ExportMetricsServiceRequest.FromString(body)
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_response(receiver.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                receiver.got.put((request, {"path": self.path, **{k.lower(): v for k, v in self.headers.items()}}))

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Receiver]:
        receiver = cls()
        thread = threading.Thread(target=receiver._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver._server.shutdown()
            receiver._server.server_close()
            thread.join()


def metrics_of(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    """Return the metrics of *request* by name: of its only resource and scope."""
    [resource] = request.resource_metrics
    [scope] = resource.scope_metrics
    assert scope.scope.name == "cdc"
    return {metric.name: metric for metric in scope.metrics}


def attributes_of(point: object) -> dict[str, str]:
    """Return the attributes of a data point, or of a resource."""
    return {attribute.key: attribute.value.string_value for attribute in point.attributes}  # type: ignore[attr-defined]
