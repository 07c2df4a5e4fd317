"""Who may do what over REST. docs/security.md has the threat model."""
