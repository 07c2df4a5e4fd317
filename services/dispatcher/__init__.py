"""The dispatcher: job submission over the bus and REST, and the dashboard."""
