"""What the operator sees of the cluster, kept up to date."""
