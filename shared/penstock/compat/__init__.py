"""Other packages' names for what Penstock has: programs written for them run unchanged."""
