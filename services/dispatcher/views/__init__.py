"""What the REST API answers: a struct for each shape of Flink's REST API, and pure functions that make it from
the facts about jobs and the cluster. Fields of ours stand behind Flink's, under a comment that says so."""
