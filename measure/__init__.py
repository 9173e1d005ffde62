"""Building and timing candidates: isolation, timing protocol, verification, pools of devices.

`local.LocalPool` is the way in. From the outside to the inside: `pool` (what any pool offers),
`local`, `builders` and `slot` (who is asked), `build` and `runner` (what children do), `child`,
`warm`, `template`, `protocol` and `containment` (how they are contained), `verification` and
`inputs` (whether a result is right), `timing`, `pacer`, `threads` and `visits` (what its time is
worth), `lock` (who may measure now).
"""
