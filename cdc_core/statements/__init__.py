"""CockroachDB's statements for changefeeds: their text, and the definitions that they mean."""
