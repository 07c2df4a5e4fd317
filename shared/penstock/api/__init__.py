"""The DataStream API and the client of a cluster."""
