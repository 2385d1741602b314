"""The command line: parses words, calls one workflow, prints one document, and returns a documented exit code.

It may import everything; nothing imports it.
Begin with `console_script` and `group`; `commands` lists the commands and the modules that hold them.
"""
