"""Real servers for tests: fetched once into a cache folder, started on loopback, ended by their own ids."""
