"""Proof that emulators enforce alignment: the cell of canaries of one target, and plumb self-test for an installation.

It may import target_setup, cell_process and everything below workflows. Begin with self_test.
"""
