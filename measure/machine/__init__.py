"""What candidates run on: one protocol (`protocol`), with this machine's processor (`kernel`,
`threads`) and a GPU (`gpu`, `gpu_memory`, `gpu_compare`) behind it."""
