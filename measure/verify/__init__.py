"""Whether a result is right: inputs, reference, comparison, the interpreter's second opinion, and
the baseline schedule."""
