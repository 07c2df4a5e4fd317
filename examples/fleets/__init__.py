"""Which aircraft and airports belong together: connected components, found on Spark."""
