"""Avro: a binary or JSON record in each message, or container files."""
