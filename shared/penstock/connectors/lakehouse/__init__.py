"""What tables of data files with a log of commits share: Apache Iceberg and Delta Lake."""
