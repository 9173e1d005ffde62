"""The stage view: schedules in the tensor-expression style, replayed on the one `Schedule`."""
