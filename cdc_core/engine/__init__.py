"""What the processes of a changefeed do, independent of what runs them: nothing here imports pyspark."""
