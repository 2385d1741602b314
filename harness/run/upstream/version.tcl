# Prints the version of Tcl.
puts [info tclversion]
