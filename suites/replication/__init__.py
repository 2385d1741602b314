"""Primary and replica on different machines."""
