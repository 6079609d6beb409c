"""Apache Kafka for cdc-core changefeeds."""
