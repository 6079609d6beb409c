"""Who may ask a server what, and how much."""
