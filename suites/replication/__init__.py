"""Primary and replica on machines that differ."""
