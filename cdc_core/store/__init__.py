"""The progress store: how far each changefeed has come, kept in a SQL database."""
