"""Parts of rangefeeds, each with one mistake: the simulated database's otherwise."""
