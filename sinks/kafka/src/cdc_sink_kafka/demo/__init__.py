"""Real servers on loopback for the demo, tests and benchmarks: Apache Kafka and a schema registry, from Maven."""
