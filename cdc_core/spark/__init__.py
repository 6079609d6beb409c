"""A changefeed as a Spark Structured Streaming query: the only package that imports pyspark."""
