"""Why a job has no output, is slow, or fails: findings with their causes and the next step. Pure."""
