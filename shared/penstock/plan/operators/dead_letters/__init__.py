"""The rows of dead letters."""
