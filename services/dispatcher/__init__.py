"""The front door: submission by bus and REST, and the dashboard."""
