"""Servers whose threads see one another's stores in their machine's own order, under loads that fill their queues."""
