"""The dispatcher: job submission by bus and REST, and the dashboard."""
