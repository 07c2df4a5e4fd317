"""Rows of a catalog table."""
