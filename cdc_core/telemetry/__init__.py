"""What a running changefeed reports about itself: stages, activity, status."""
