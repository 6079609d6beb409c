"""What every test of the tree may use."""

pytest_plugins = ["cdc_testing.fixtures", "cdc_testing.kafka_fixtures", "cdc_testing.counts"]
