"""Plumbline's own module in the server: every other machine must load what it saves through the module API."""
