"""Regular, interval and window joins."""
