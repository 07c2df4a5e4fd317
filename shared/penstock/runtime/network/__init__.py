"""Data connections between slots: frames, connections, and the hub of a slot."""
