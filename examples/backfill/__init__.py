"""A job of history then live: the history on Spark, the stream from its state."""
