"""Protocol Buffers: one message of a generated class, or of a descriptor set, in each record."""
