"""A running job is replaced by its next version, which goes on with its state; and back again."""
