"""GROUPING SETS: each row once per projection list."""
