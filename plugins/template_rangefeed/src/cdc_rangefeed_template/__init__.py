"""The source `template` for changefeeds. Only what `plugin` registers is public."""
