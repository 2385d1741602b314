"""Any program of a target, or a command that runs some: the job of plumb exec, and the environment to compile in.

It may import target_setup, cell_process and everything below workflows. Begin with execution.
"""
