"""The first rows of each partition, and deduplication."""
