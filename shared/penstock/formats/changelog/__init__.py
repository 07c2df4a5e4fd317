"""Formats of database changes as JSON: ``debezium-json``, ``canal-json``, ``maxwell-json``, ``ogg-json``."""
