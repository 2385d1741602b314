"""Numbers that exceed a machine's word, or whose sign depends on its `char`."""
