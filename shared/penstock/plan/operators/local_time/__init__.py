"""Event time on the clock of a time zone."""
