"""Operators: what a slot runs in a task, with sources, sinks, window assigners and watermarks."""
