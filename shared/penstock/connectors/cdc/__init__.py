"""What the sources share that follow the changes of a database: a snapshot in chunks, then changes."""
