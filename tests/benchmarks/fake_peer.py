"""A peer's server without an engine: speaks the protocol, and misbehaves as its workload says."""

import json
import os
import sys
import time

workload = sys.argv[sys.argv.index("--workload") + 1]
if workload == "silent":
    time.sleep(60)
if workload == "dies":
    print("out of luck", file=sys.stderr)
    sys.exit(3)
if workload == "refuses":
    print(json.dumps({"ready": False, "error": "ValueError: no such operation"}), flush=True)
    sys.exit(1)
about = {"core": os.environ.get("OPENBLAS_CORETYPE"), "omp": os.environ["OMP_NUM_THREADS"]}
print(json.dumps({"ready": True, "about": about}), flush=True)
for line in sys.stdin:
    if workload == "dies later":
        print("out of memory", file=sys.stderr)
        sys.exit(4)
    request = json.loads(line)
    seconds = 1e-3 * request["calls"]
    print(json.dumps({"min": seconds, "median": 2 * seconds, "calls": 1, "call": 1e-6}), flush=True)
