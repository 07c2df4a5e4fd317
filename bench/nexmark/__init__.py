"""Nexmark: the auction benchmark, q0–q22, on the streaming engine."""
