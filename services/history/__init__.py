"""The history server: Flink's REST API and the dashboard over jobs that have ended, from the object store alone."""
