"""What a running changefeed reports about itself: stages, metrics, status."""
