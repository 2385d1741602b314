"""Every machine must read what any other machine has written."""
