"""What makes documents: not part of the suite."""
