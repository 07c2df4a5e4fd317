"""Benchmarks. ``python -m bench`` runs them all; each module says what it measures."""
