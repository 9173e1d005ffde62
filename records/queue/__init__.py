"""Jobs as a queue: submitted, claimed under leases, parked, resumed and ended."""
