"""A JVM with jars of Maven, which py4j drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from cdc_sink_kafka.demo.java_process import java
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

__all__ = ["java_gateway"]


@contextmanager
def java_gateway(jars: Path) -> Iterator[JavaGateway]:
    """Yield a gateway to a JVM that ends with the block. It may call Python, which listens at a free port."""
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(jarpath=str(bridge), classpath=f"{jars}/*", java_path=java(), die_on_exit=True)
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port),
        callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
    )
    server = gateway.get_callback_server()
    gateway.java_gateway_server.resetCallbackClient(
        gateway.java_gateway_server.getCallbackClient().getAddress(), server.get_listening_port()
    )
    try:
        yield gateway
    finally:
        gateway.shutdown()
