"""The service: every verb on changefeeds, jobs, schedules and nodes, once for all doors."""
