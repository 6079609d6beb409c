"""A PostgreSQL of one's own, for the demo, tests and benchmarks. Needs the extra `demo`."""
