"""Rows that meet a condition."""
