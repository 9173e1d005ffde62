"""How candidates are timed: blocks of samples (`block`), the order in which candidates get them
(`sampler`), and two probes of the machine (`clock_probe`, `interference`)."""
