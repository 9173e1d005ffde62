"""Cost models: what predicts, before it is measured, how fast a candidate runs."""
