"""Between tables and streams: kinds of rows and event times as columns."""
