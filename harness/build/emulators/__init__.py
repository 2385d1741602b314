"""User-mode emulators: their sources and identity, how they are compiled and kept, and how programs run under them.

It may import `harness.build.sources` and what that may import; it compiles nothing for a target.
Begin with `runner` for how a program runs, and with `emulator_cache` for where its emulator comes from.
"""
