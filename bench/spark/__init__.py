"""Penstock on Spark: overhead, starting, a large batch."""
