"""Columns computed of each row."""
