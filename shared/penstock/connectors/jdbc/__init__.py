"""``jdbc``: tables of a SQL database, with the option names of Flink's connector."""

from penstock.connectors.jdbc.connector import JdbcConnector

__all__ = ["JdbcConnector"]
