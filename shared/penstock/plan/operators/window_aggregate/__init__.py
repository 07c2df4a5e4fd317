"""Grouping that includes a window."""
