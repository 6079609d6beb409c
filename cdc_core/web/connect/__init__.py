"""The REST interface in the dialect of Kafka Connect: a connector is a job."""
