"""The pool of one device on this machine: building, running and timing candidates in children."""
