"""From row batches to a flushed sink: delivery, bad rows, dead letters and their replay."""
