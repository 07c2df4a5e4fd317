"""``http``, ``http-sink``, ``rest-lookup``: web hooks, polled and looked-up addresses, and requests for rows."""

from penstock.connectors.http.connector import HttpConnector, HttpSinkConnector, RestLookupConnector

__all__ = ["HttpConnector", "HttpSinkConnector", "RestLookupConnector"]
