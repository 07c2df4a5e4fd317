"""LIMIT and OFFSET without an order."""
