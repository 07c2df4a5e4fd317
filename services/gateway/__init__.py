"""The SQL gateway: Flink's REST API of sessions and statements, for Flink's SQL client and JDBC driver."""
