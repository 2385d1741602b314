"""A module of ours in the server: what it saves through the module API, every other machine must load."""
