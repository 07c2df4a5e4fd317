"""Rows that an operator sends to a side output."""
