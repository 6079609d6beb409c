"""The engine: a changefeed as a Spark Structured Streaming query. The only package that imports pyspark.

runner        driver       attempts, retries, clean stop, status
session       driver       the Spark session and its settings
source        planner and executors   a rangefeed as a streaming data source
writer        executors and coordinator   a sink as a streaming data sink
coordinator   coordinator  folds reports, saves progress, emits resolved, releases history
aggregator    executors    one slice: rows to the sink, flush, report
replay        a run without Spark: rows from the dead letters, sent again
packing, config, reports, control, kept    what passes between them
"""
