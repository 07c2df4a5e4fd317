"""Completes the rows of a table that is read as upserts."""
