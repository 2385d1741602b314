"""The machines of a campaign: the cluster that `--on` names, and the processes of Dask.distributed on each machine.

It may import `task` and what that may import. Begin with `cluster` and `local_machines`.
"""
