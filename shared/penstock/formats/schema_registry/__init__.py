"""Confluent-compatible schema registries: who is asked, how, and the header that names a message's schema."""
