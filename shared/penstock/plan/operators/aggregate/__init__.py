"""Unwindowed grouping, also DISTINCT."""
