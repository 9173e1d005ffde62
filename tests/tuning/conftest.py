"""What the tests of tuning share: the spaces of their workloads."""

from spaces import one_space_a_workload as one_space_a_workload
