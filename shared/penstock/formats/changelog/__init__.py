"""Formats of database changes: ``debezium-json``, ``debezium-avro-confluent``, ``canal-json``, ``maxwell-json``, ``ogg-json``."""
