"""What happens to searches and writes when a node of the cluster dies."""
