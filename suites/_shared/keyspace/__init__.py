"""One data set, in servers and in files: shared by persistence, replication and cluster."""
