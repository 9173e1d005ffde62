"""Exit statuses of the command line; the last two are what shells give for SIGINT and SIGPIPE."""

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
