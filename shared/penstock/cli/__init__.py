"""The command line ``penstock``: one module per group of commands."""
