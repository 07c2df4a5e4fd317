"""Rows that the plan itself holds."""
