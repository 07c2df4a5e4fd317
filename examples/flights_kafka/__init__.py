"""The flights job over Kafka: its board goes to a topic, to an Iceberg table or to PostgreSQL."""
