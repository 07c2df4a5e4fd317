"""Functions with OVER."""
