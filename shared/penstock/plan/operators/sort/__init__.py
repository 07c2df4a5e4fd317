"""ORDER BY, with or without a limit."""
