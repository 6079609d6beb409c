"""The encoder `template` for changefeeds. Only what `plugin` registers is public."""
