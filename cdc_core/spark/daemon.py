"""The process that Spark forks its Python workers from. It loads what they need once, and they share its memory."""

from __future__ import annotations

import gc

import cdc_core.spark.source
import cdc_core.spark.writer
import cdc_core.store.progress  # noqa: F401

if __name__ == "__main__":
    from pyspark.daemon import manager  # looks at the command line when it is imported

    gc.collect()
    gc.freeze()  # a collection in a child would write to every page of it
    manager()
