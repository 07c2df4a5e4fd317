"""``elasticsearch-7``, ``elasticsearch-8``, ``opensearch``: documents of a search server."""

from penstock.connectors.search.connector import Elasticsearch7, Elasticsearch8, OpenSearch

__all__ = ["Elasticsearch7", "Elasticsearch8", "OpenSearch"]
