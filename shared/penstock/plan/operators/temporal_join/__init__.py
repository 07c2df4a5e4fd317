"""Joins with a table as of a time, and lookup joins."""
