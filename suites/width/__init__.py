"""Numbers that outgrow a machine's word, or whose sign its `char` does not have."""
