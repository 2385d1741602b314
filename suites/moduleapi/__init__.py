"""The module API, called by Plumbline's module with numbers beyond 32 bits, negative numbers and binary strings."""
