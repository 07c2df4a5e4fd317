"""Who may do what over REST. docs/securing.md has the threat model."""
