"""A sink that delivers nothing. Only what `plugin` registers is public."""
