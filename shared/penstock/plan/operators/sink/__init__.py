"""Rows written into a table."""
