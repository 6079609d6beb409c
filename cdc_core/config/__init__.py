"""What a user writes, and how it becomes one frozen, resolved changefeed."""
