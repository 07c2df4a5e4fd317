"""Connector ``mysql-cdc``: the rows of MySQL and MariaDB tables, then their changes by the binary log."""

from penstock.connectors.mysql_cdc.connector import MySqlCdcConnector

__all__ = ["MySqlCdcConnector"]
