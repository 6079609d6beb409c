"""All servers in one place: brokers, registries, and certificates for them."""

from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.certificates import Certificates, make_certificates
from cdc_sink_kafka.demo.client import admin_client
from cdc_sink_kafka.demo.listeners import KafkaSecurity, Listener
from cdc_sink_kafka.demo.registry import SchemaRegistry

__all__ = [
    "Certificates",
    "KafkaBroker",
    "KafkaSecurity",
    "Listener",
    "SchemaRegistry",
    "admin_client",
    "make_certificates",
]
