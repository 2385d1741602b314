"""Where a server's makefile runs: the folder, and the compiler's warnings that it leaves.

It may import `allocator` and what that may import. Begin with `build_directory`.
"""
