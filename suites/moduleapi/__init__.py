"""The module API, called by a module of ours with numbers beyond 32 bits, negative numbers and binary strings."""
