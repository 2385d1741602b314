"""Where a server's makefile runs: the folder, the compilers and commands in it, and the warnings that they leave.

It may import `allocator` and what that may import. Begin with `build_directory`; `build_failure` is the finding of a
tree that does not compile.
"""
