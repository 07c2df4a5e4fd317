"""A service over NATS whose answers come from the state of a job."""
