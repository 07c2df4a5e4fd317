"""Which flights will leave late: a model trained on Spark, used in the stream."""
