"""Plumbline's own module: every machine must load what the module saves on another through the module API."""
