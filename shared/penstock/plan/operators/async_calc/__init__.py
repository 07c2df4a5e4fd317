"""Async functions, awaited for each row."""
