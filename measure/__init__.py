"""Building and timing candidates: isolation, timing, verification, pools of devices.

`local.pool.LocalPool` and `cluster.pool.ClusterPool` are the ways in; `pool` says what they have in
common, `status` what they answer, `devices` what is measured on; `replay` is a pool of recorded
answers. Parts, each of which knows only those before it:

| part | what it does |
|---|---|
| `process` | contained child processes, forked from a warm template |
| `timing` | blocks of samples, who gets one, the probes of the machine |
| `verify` | inputs, reference, comparison |
| `machine` | a kernel's call on a processor or a GPU |
| `local` | one device of this machine: builders, runner, lock, jobs |
| `cluster` | many devices: dispatcher, transport, workers |
"""
