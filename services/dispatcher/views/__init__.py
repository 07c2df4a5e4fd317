"""The answers of the REST API: a struct for each form of answer in Flink's REST API, and pure functions that
make it from the facts about jobs and the cluster. Penstock's own fields come after Flink's, below a
comment that says so."""
