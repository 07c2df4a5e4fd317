"""Rows of a table that is read as upserts, made whole."""
