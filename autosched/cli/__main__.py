"""`python -m autosched.cli`."""

from autosched.cli.main import main

raise SystemExit(main())
