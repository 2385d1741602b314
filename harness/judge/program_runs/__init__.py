"""Judges the specifics of a command that ran instead of a server: the programs of the target below it.

Faults and ends of these programs become sightings as those of servers do. It may import everything below `judge`.
Begin with `program_evidence`.
"""
