"""Job masters: the execution graph, scheduling, checkpoints and failover of a job."""
