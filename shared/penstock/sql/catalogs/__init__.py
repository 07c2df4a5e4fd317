"""Catalogs that outlive a session: their port, Penstock's own, Iceberg's, and where CREATE CATALOG is kept."""
