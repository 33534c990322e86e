"""What the command line tells of a cluster: `guidedmodel status`."""
