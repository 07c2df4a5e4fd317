"""Catalogs that outlive a session: the port, Penstock's own, Iceberg's, and the store of declarations."""
