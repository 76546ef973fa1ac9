"""Images of servers that a cluster needs and a machine may not be able to pull, built from the parts that tests use."""
