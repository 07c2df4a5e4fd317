"""Columns computed from each row."""
