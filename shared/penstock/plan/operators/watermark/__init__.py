"""A watermark strategy in the middle of a plan."""
