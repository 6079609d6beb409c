"""The distributions of this project by what they register: the only packages that messages suggest to install."""

from __future__ import annotations

_FILES = ("file", "s3", "gs", "azure", "azure-blob", "azure-storage", "memory")
# The kind, then each name and scheme. A test compares it with what they register.
DISTRIBUTIONS = {
    "cdc-conformance": ("rangefeed", "simulated"),
    "cdc-encoder-avro": ("encoder", "avro"),
    "cdc-encoder-csv": ("encoder", "csv"),
    "cdc-encoder-json": ("encoder", "json"),
    "cdc-encoder-parquet": ("encoder", "parquet"),
    "cdc-encoder-protobuf": ("encoder", "protobuf"),
    "cdc-rangefeed-postgres": ("rangefeed", "postgres", "postgresql"),
    "cdc-sink-cloudstorage": ("sink", "cloudstorage", *_FILES),
    "cdc-sink-kafka": ("sink", "kafka", "confluent-cloud", "azure-event-hub"),
    "cdc-sink-null": ("sink", "null"),
    "cdc-sink-webhook": ("sink", "webhook", "webhook-https", "webhook-http"),
}


def registering(kind: str, word: str) -> str | None:
    """Return the distribution of this project that registers *word*, a name or a scheme of *kind*, None if none does.

    It never guesses: anybody could publish a package under a name that is not taken.
    """
    return next((name for name, (of, *words) in DISTRIBUTIONS.items() if of == kind and word in words), None)
