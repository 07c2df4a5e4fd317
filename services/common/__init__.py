"""Shared by the four services: start and stop, actors, election, clock, processes."""
