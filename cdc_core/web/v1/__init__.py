"""The REST paths that Kafka Connect has no words for: jobs, nodes, dead letters, previews."""
