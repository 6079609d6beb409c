"""CDC queries: what a changefeed selects of one table, as text, bound to the table's columns."""
