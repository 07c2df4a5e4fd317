"""What the four services share: start and stop, actors, election, clock, processes."""
