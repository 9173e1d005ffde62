"""Pools of devices on many machines: dispatcher, driver, transport, and the worker's side."""
