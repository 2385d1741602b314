"""What one machine writes, every other must read."""
