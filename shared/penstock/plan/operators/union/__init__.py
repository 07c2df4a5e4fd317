"""UNION ALL."""
