"""Channels: where messages go, how each kind of them writes a message, and how it is sent safely."""
