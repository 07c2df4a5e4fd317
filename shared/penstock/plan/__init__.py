"""Logical plan, optimiser, job graph. Knows no engine."""
