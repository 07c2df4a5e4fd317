"""The same logical plan on PySpark. Not built yet: a job with ``execution.engine = spark``
is refused when it is planned."""
