"""Expressions, their types and their vectorised meaning: one definition for every engine."""
