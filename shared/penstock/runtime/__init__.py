"""The runtime of a slot: tasks, gates, channels, credit, barriers, the slot process and its template."""
