"""How candidates are timed: blocks of samples (`block`), the order in which candidates get them
(`sampler`), their one result (`timing`), and the probe of the clock (`clock_probe`)."""
