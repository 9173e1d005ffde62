"""Building and timing candidates: isolation, timing protocol, verification, pools of devices.

`local.LocalPool` is the way in. From the outside to the inside: `pool` (what any pool offers),
`local`, `builders` and `slot` (who is asked), `build` and `runner` (what children do), `child`,
`template` and `protocol` (how they are contained), `verification`, `inputs` and `timing` (what a
result is worth).
"""
