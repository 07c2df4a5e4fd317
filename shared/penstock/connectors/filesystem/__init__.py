"""``filesystem``: files, folders and globs, on local disk or in object storage."""

from penstock.connectors.filesystem.connector import FilesystemConnector

__all__ = ["FilesystemConnector"]
